"""One module per command, in rooms: `carpool NAME` is the click command that `cli.main.GROUPS` names.

A module has the command's options, its help, and the order of its steps; what several commands need is in the rooms
below (`request`, `simulation`, `base`, `render`), all of which it may import.  Commands do not import each other.
"""
