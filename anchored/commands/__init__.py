"""The command line: one file a command, with its flags and what it calls; `anchored.cli` assembles them.

What may enter: flags and printing. Every command is a thin layer over a function of another room.
"""
