"""Options and settings of the daemon, and the devices that they name.

Read once at the start, or changed by an administrator.
"""
