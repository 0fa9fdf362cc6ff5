"""Whether processes of a job compute without Carpool, which then manages neither their turns nor their memory.

Only what is known is reported.  A process asks for a seat when PyTorch is imported in it; JAX, TensorFlow and programs
without a framework never do, and for a while such a job cannot be told from one that is still starting.
"""

from __future__ import annotations

from carpool.core.model import JobPhase, Micros
from carpool.daemon.jobs.table import JobRecord

#: Longer than a job that imports PyTorch first takes until its seat, on a busy machine.
STARTS_WITHIN: Micros = 30_000_000
NO_PYTORCH = "none of its processes has imported PyTorch so far: what else it runs computes without Carpool"


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
