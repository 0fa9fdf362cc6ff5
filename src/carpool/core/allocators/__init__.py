"""How devices are given to jobs: in lanes that jobs share.  The simulator has another allocator, of whole devices.

May import everything of the core below `lifecycle`.
"""
