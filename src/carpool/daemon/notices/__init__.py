"""Notices: telling a command or a web server about starts and ends of jobs, even if the daemon is restarted meanwhile.

An owed notice is on disk before the end that it reports, and is sent by a process of the job's owner
(`carpool.runtime.notifier`).  Imports `journal`, `cgroups`, `jobs`, `privileges` and `system`.
"""
