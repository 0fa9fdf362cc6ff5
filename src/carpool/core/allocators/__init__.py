"""The allocator of lanes, which jobs share.  The simulator has another allocator, of whole devices.

May import everything of the core below `lifecycle`.
"""
