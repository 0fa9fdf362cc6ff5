"""Building, measuring and storing a model before it is served, in a process of its own.

May import `model` and below.
"""
