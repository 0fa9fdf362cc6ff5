"""Texts for users about a job: from the traits in its seat, and of its processes that compute without Carpool."""

from __future__ import annotations

from functools import reduce
from operator import or_

from carpool.core.model import JobPhase, Micros
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.seat import Trait

#: These two are no bits of the seat's word: the daemon observes both itself, like processes that bypass Carpool.
SEVERAL = Trait(1 << 32)
LENDS = Trait(1 << 33)
BYPASS = "some of its driver calls bypass Carpool"
EXCLUSIVE_BECAUSE = {
    Trait.COLLECTIVE: "its processes communicate by NCCL",
    Trait.UNGATED: BYPASS,
    Trait.FIXED: "it has much device memory that Carpool does not manage",
    SEVERAL: "several of its processes use the device",
}
PINNED_BECAUSE = {
    Trait.SHARED: "it has given other processes access to its memory",
    LENDS: "some of its processes have memory from the driver itself",
}
EXCLUSIVE = "it was submitted with --exclusive"
#: The traits that affect other jobs; changes of the remaining traits are not worth an event.
TELLING = int(reduce(or_, (*EXCLUSIVE_BECAUSE, *PINNED_BECAUSE)))
#: Longer than a job that imports PyTorch first takes until its seat, on a busy machine.
STARTS_WITHIN: Micros = 30_000_000
NO_PYTORCH = "none of its processes has imported PyTorch so far: what else it runs computes without Carpool"


def why_exclusive(traits: int, ungated_pid: int | None = None, passing: str = "") -> str | None:
    """Explain why the job must have its device to itself; None: it need not.

    ``ungated_pid``: a process that uses the device without a seat.  ``passing``: the form of a hooked call that is not
    known.
    """
    known = _reasons(EXCLUSIVE_BECAUSE, traits)
    if known is not None and passing:
        known = known.replace(BYPASS, f"{BYPASS} ({passing} is not known to this version)")
    if ungated_pid is None:
        return known
    text = f"its process {ungated_pid} uses the device outside of Carpool"
    return text if known is None else f"{known}, and {text}"


def why_pinned(traits: int) -> str | None:
    """Explain why the job's memory cannot be offloaded; None: it can."""
    return _reasons(PINNED_BECAUSE, traits)


def _reasons(known: dict[Trait, str], traits: int) -> str | None:
    if not traits & TELLING:
        return None  # the case for nearly all jobs, thousands of which may be listed at once
    return ", and ".join(text for trait, text in known.items() if trait & traits) or None


def why_unmanaged(job: JobRecord, now: Micros) -> str | None:
    """Explain to users what is unmanaged; None: nothing, or it is not known.  ``now``: wall clock time."""
    if job.phase is not JobPhase.RUNNING or job.by_checkpoint:
        return None
    if job.ungated_pid is not None:
        return f"its process {job.ungated_pid} uses the device outside of Carpool"
    if job.refused_pid is not None:
        return (
            f"its process {job.refused_pid} computes without Carpool, which manages one process of a job on this device"
        )
    began = now if job.started_us is None else job.started_us
    return NO_PYTORCH if not job.was_seated and now - began > STARTS_WITHIN else None
