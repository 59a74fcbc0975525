"""A run on disk: saved, loaded, shared on the Hub, exported, or imported from a released checkpoint.

What may enter: what reads or writes the folder of one run. What is done with many runs stays outside.
"""

from anchored.runs.run import Run, load, save

__all__ = ["Run", "load", "save"]
