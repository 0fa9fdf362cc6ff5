"""Whether something of a job computes without Carpool: neither its turns nor its memory are managed then.

Only what is known is said.  A process asks for a seat when PyTorch is imported in it; JAX, TensorFlow and programs
without a framework never do, and before a while has passed nobody can tell them from a job that is still starting.
"""

from __future__ import annotations

from carpool.core.model import JobPhase, Micros
from carpool.daemon.jobs.table import JobRecord

#: Longer than a job takes that imports PyTorch first, on a busy machine.
STARTS_WITHIN: Micros = 30_000_000
NO_PYTORCH = "none of its processes has imported PyTorch so far: what else it runs computes without Carpool"


def why_unmanaged(job: JobRecord, now: Micros) -> str | None:
    """For people; None: everything of the job is managed, or nobody knows.  ``now``: wall clock."""
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
