"""Places ahead of a job that computes at which it may have to give way, as positions of its motion."""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.sim.jobs.modelled_job import SeatedJob


def idles(job: SeatedJob) -> bool:
    """Whether the host time of its iterations is long enough to lose the turn."""
    return job.motion.host_us > job.grace_us * job.motion.lump


def early_at(job: SeatedJob) -> Micros | None:
    """Where a job that is watched will have been off the device for longer than the grace; None: nowhere.

    What it did before it was watched does not count: nobody looked.
    """
    if job.watched_at is None or not idles(job):
        return None
    motion, grace = job.motion, job.grace_us * job.motion.lump
    device_end = motion.device_end()
    lump_end, off = device_end + motion.host_us, max(device_end, job.watched_at) + grace
    return off if off < lump_end else lump_end + motion.device_us + grace


def boundary_at(job: SeatedJob) -> Micros:
    """The end of an iteration at which a job gives way that is asked to; at least one is done in a turn."""
    motion = job.motion
    boundary = motion.boundary_after(max(motion.position_us() - 1, job.start_us))
    if idles(job) and boundary >= motion.device_end():
        return motion.lump_end_after(motion.position_us())
    return boundary
