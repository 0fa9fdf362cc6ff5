"""The description of a served model, and how its weights are laid out and cut into groups for copying.

Pure: no I/O, no framework; integers of bytes and nanoseconds.  May import `oip` only.
"""
