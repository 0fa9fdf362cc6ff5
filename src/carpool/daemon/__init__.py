"""carpoold: one event loop that runs the pure core on real jobs and keeps a journal of what it decided and why.

Each folder says what lives there; `build` puts the parts together, `loop` drives the core, and `effects` carries its
commands out.  Who may import whom is a contract in ``pyproject.toml`` ("The daemon's floors").
"""
