"""From answers of the daemon to text for people: tables, colours, progress, times and sizes.

The lowest room: functions of what they are given (and of the terminal), which ask the daemon nothing.  May import the
protocol, and nothing else of the command line.
"""
