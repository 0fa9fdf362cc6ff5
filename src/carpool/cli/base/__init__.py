"""What commands have in common: options, exit codes, errors, presets, starting the daemon, `doctor`'s checks, MPS.

Enters what several commands use, or what a command does outside the daemon.  May import `render`, the protocol and the
core's values; knows no command.
"""
