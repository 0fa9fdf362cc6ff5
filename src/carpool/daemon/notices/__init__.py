"""Notices: telling a command or a web server of the starts and ends of jobs, whatever becomes of the daemon meanwhile.

What is owed is on the disk before the end that it is about, and is sent by processes of the jobs' owners
(`carpool.runtime.notifier`).  Imports `journal`, `cgroups`, `jobs`, `privileges` and `system`.
"""
