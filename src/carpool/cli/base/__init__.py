"""Parts that commands share: options, exit codes, errors, presets, starting the daemon, `doctor`'s checks.

Code that several commands use, or for work outside the daemon, belongs here.  May import `render`, the protocol and the
core's values; knows no command.
"""
