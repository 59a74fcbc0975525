"""Rows and per-sample scores to tables, figures, a verdict and one HTML page.

What may enter: what reads rows, scores, settings and saved thumbnails, and nothing that trains or predicts.
"""

from anchored.report.intervals import summarise
from anchored.report.judgement import judge
from anchored.report.page import write_report
from anchored.report.present import present
from anchored.report.terminal import print_table
from anchored.report.verdict import verdict

__all__ = ["judge", "present", "print_table", "summarise", "verdict", "write_report"]
