"""Python's garbage collector: rarely for what lives long, so that the loop does not stand still with thousands of jobs.

A full collection looks at every object: 0.15 s with ten thousand jobs, in which nobody gets an answer.  Nearly
everything here is freed without the collector; only cycles, as in errors with tracebacks, wait for one.
"""

from __future__ import annotations

import gc

#: New objects before they are looked at, how often that is before those that are left are, and that before all are.
THRESHOLDS = (1_000, 10, 100)


def collect_rarely() -> None:
    """For a daemon, at its start."""
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """Modules, and jobs of an earlier daemon, are never looked at again; they are still freed as usual."""
    gc.collect()
    gc.freeze()
