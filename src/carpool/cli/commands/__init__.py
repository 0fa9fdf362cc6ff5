"""One file per command: `carpool NAME` is `commands/NAME.py`.

May import `request`, `render` and `base`; commands do not import each other.
"""
