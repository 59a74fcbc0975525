"""Arms on one data set: everything loaded and checked, every run trained, all evaluated on the same images.

What may enter: what needs several rooms to work together; the work itself stays in those.
"""
