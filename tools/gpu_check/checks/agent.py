"""The device agent and what the daemon does with it."""

from __future__ import annotations

import os
import signal

from carpool.devices.base import Extent
from tools.gpu_check.registry import check, needs_packages, require
from tools.gpu_check.worker import Worker, workers

MIB = 1 << 20
SIZE = 64 * MIB


def map_into(worker: Worker, files: tuple[Extent, ...], first: int = 0) -> None:
    for file in files[first:]:
        worker.ask("map", file.fd, size=file.size)


@check("a lane outlives its agent (killed), grows under the next one, and is free after it is closed")
def lane_outlives_its_agent() -> None:
    needs_packages("msgspec")  # what daemon and agent talk with
    from carpool.devices.cuda.agent_link import AgentLink
    from carpool.devices.cuda.device import CudaDevice

    with workers(1) as (job,):
        before, _ = job.ask("free")
        link = AgentLink(0)
        device = CudaDevice("cuda0", 4 * SIZE, link)
        device.open_lane(1, SIZE)
        had = device.lane_files(1)
        map_into(job, had)
        job.ask("fill", at=0, value=77)
        assert link.pid is not None
        os.kill(link.pid, signal.SIGKILL)
        device.resize_lane(1, 2 * SIZE)
        files = device.lane_files(1)
        require(files[: len(had)] == had, "the lane has other extents than before")
        map_into(job, files, first=len(had))
        words, _ = job.ask("read", at=0)
        require(words == [77, 77, 77], f"the lane's content is gone: {words}")
        words, _ = job.ask("read", at=len(had))
        require(words == [0, 0, 0], f"what was added is not clear: {words}")
        device.close_lane(1)
        device.close()
        link.close()
        for _ in files:
            job.ask("unmap")
        after, _ = job.ask("free")
        require(after >= before, f"{before - after} bytes have not come back")
