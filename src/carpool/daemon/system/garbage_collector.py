"""Python's garbage collector: rarely for what lives long, so that the loop does not stand still with thousands of jobs.

A full collection looks at every object: 0.15 s with ten thousand jobs, in which no request is answered.  Nearly
everything here is freed without the collector; only cycles, as in errors with tracebacks, wait for one.
"""

from __future__ import annotations

import gc

#: New objects per collection of generation 0, collections of 0 per one of 1, and of 1 per one of 2.
THRESHOLDS = (1_000, 10, 100)


def collect_rarely() -> None:
    """For a daemon, at its start."""
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """Modules, and jobs of an earlier daemon, are never looked at again; they are still freed as usual."""
    gc.collect()
    gc.freeze()
