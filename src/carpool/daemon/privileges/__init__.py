"""What a daemon does with rights that it has over its users' processes and files, or asks its helper for.

`direct`: with its own rights, which are root's or an ordinary user's.  `by_helper`: with none of its own (``--user``);
`helper` is the program that stays root, `user` the way there.  Imports `system` only.
"""
