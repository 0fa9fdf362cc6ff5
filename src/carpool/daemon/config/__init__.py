"""Options and settings of the daemon, and the devices that they name.

Read once at the start, or changed by an administrator.  Imports `jobs` and `system`; knows no part that runs.
"""
