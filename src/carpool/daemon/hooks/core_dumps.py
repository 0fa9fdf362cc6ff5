"""Core dumps of jobs, which ``core_dumps`` in ``limits.toml`` may forbid."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from carpool.daemon.hooks.base import JobHook, JobStart


class CoreDumps(JobHook):
    """Tells shims whether their jobs may leave core dumps; `carpool.runtime.shim` carries that out."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def starting(self, start: JobStart, then: Callable[[str], None]) -> None:
        """Say whether the job may leave any."""
        start.spec = msgspec.structs.replace(start.spec, core_dumps=self._allowed)
        then("")
