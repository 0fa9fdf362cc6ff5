"""From answers to text: tables, colours, times and sizes for people.

May import `base` and the protocol; asks the daemon nothing.
"""
