"""Operations for which a daemon needs rights over its users' processes and files, and the helper that has them.

`direct`: with the daemon's own rights, which are root's or an ordinary user's.  `by_helper`: with no rights of its own
(``--user``); `helper` is the program that stays root, `user` the change of user.  Imports `system` only.
"""
