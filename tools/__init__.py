"""Programs for those who work on Carpool, or look at it: none is installed, and nothing of the package imports them.

``demo``: what sharing is for, in scenes.  ``emulator``: a GPU for tests.  ``gpu_check``: what only a real GPU can show.
``release``: the wheel and signed releases.  Each is run from the root of a checkout, as in ``python -m tools.demo``.
"""
