"""`python -m anchored` is the command `anchored`."""

from anchored.cli import main

main()
