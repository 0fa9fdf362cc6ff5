"""How devices are given to jobs: in lanes that jobs share, or whole.  `Machine` selects one of the two, once.

May import everything of the core below `lifecycle`.
"""
