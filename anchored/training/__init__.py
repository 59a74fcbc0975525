"""How one run is trained: order, feed, step and loop, optimisers, checkpoints, several processes, recorders.

What may enter: what changes or moves weights. What is compared with what is decided elsewhere.
"""
