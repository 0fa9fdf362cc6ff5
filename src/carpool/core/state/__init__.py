"""The core's state: jobs, lanes, devices and their timers, as plain data.

Every room above reads and changes it; it imports policies and the vocabulary only.
"""
