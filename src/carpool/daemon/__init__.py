"""carpoold: one event loop that runs the pure core on real jobs and keeps a journal of its decisions and their reasons.

Each folder's `__init__` says what it contains; `build` puts the parts together, `loop` drives the core, and `effects`
carries out its commands.  The allowed imports are a contract in ``pyproject.toml`` ("The daemon's floors").
"""
