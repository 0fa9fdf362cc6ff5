"""Disabling core dumps of a process.  Standard library only."""

from __future__ import annotations

import resource


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and all its descendants, which cannot undo it.

    The limit is 1 byte, not 0: no core fits into 1 byte either, and a kernel that pipes cores to a program
    (``core_pattern``) does so in spite of a limit of 0, but not of 1 (core(5), ``do_coredump`` in fs/coredump.c).
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 1 if most == resource.RLIM_INFINITY else min(most, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
