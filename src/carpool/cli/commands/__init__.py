"""One file per command: `carpool NAME` is `commands/NAME.py`, and its click command is called `command`.

A file has the command's options, its help, and the order of its steps; what several commands need is in the rooms
below (`request`, `simulation`, `base`, `render`), all of which it may import.  Commands do not import each other.
"""
