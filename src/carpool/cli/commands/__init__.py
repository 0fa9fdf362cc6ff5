"""The commands, in rooms: `cli.main.GROUPS` says which module has the click command of `carpool NAME`.

A module has the command's options, its help, and the order of its steps; what several commands need is in the rooms
below (`request`, `simulation`, `base`, `render`), all of which it may import.  Commands do not import each other.
"""
