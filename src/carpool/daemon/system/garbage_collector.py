"""Python's garbage collector, run rarely on long-lived objects so that the loop does not stop with thousands of jobs.

A full collection visits every object: 0.15 s with ten thousand jobs, in which no request is answered.  Nearly
everything here is freed without the collector; only cycles, as in errors with tracebacks, wait for it.
"""

from __future__ import annotations

import gc

#: New objects per collection of generation 0, collections of generation 0 per one of 1, and of 1 per one of 2.
THRESHOLDS = (1_000, 10, 100)


def collect_rarely() -> None:
    """Set the thresholds of a daemon, at its start."""
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """Exclude present objects (modules, jobs of an earlier daemon) from future collections; they are freed as usual."""
    gc.collect()
    gc.freeze()
