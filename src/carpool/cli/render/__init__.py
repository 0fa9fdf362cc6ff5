"""Conversion of the daemon's answers to text: tables, colours, progress, times and sizes.

The lowest room: functions of their arguments (and of the terminal), which never ask the daemon.  May import the
protocol, and nothing else of the command line.
"""
