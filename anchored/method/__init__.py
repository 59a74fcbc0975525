"""The idea: a classifier of (reference, residual) tuples, its references, its inference protocols, its batch norm.

What may enter: mathematics on networks and tensors; of other packages torch alone.
"""
