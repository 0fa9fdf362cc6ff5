"""The daemon's table of live jobs, their files and what is known of them.

Imports `system` and `journal`; knows no shim and no channel.
"""
