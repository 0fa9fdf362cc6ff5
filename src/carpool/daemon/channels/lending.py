"""Shares on their way to companions, which are told of them when their driver has the memory.

It gives them memory at once, so others must have let go before of what was promised to them.

Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
import logging

from carpool.daemon.jobs.memory_shares import Ask
from carpool.daemon.jobs.table import Job, JobTable
from carpool.daemon.seats.allocator import Seating
from carpool.daemon.seats.record import answer_growth, is_answered
from carpool.devices.base import DeviceError, in_extents
from carpool.protocol.seat import Grow

log = logging.getLogger(__name__)
LOOK_S = 0.05


class Lending:
    def __init__(self, jobs: JobTable, seating: Seating) -> None:
        self._jobs = jobs
        self._seating = seating

    def lend(self, job: Job, ask: Ask) -> None:
        """It has been granted ``ask.more``, which comes as soon as it can."""
        job.shares.coming.append(ask)
        self._look(job, ask)

    def hand_over(self, job: Job, ask: Ask) -> None:
        assert ask.who is not None
        job.shares.coming.remove(ask)
        ask.who.seat.set("p_limit", ask.who.seat.get("p_limit") + ask.more)

    def answer(self, ask: Ask, answer: Grow) -> None:
        if ask.who is not None and not ask.gone and not is_answered(ask.who.seat, ask.number):
            answer_growth(ask.who.board, ask.who.seat, answer, ask.number)

    def _look(self, job: Job, ask: Ask) -> None:
        if ask not in job.shares.coming:
            return
        obstacle = self._obstacle(job, ask)
        if obstacle is not None:
            log.debug("a process of job %d waits for its share: %s", job.id, obstacle)
            asyncio.get_running_loop().call_later(LOOK_S, self._look, job, ask)
            return
        self.hand_over(job, ask)
        self.answer(ask, Grow.GRANTED)

    def _obstacle(self, job: Job, ask: Ask) -> str | None:
        """Why the driver may not have it yet: what others had is still theirs, or kept for them in free banks.

        Lanes and banks get smaller by whole extents only, so they may have more than the books say.
        """
        assert job.device is not None
        device = self._seating.devices[job.device]
        assert in_extents(device)
        others = [other for other in self._jobs.live.values() if other.device == job.device]
        try:
            if device.used_bytes() > device.capacity - sum(other.shares.lent for other in others):
                device.give_way()
            if any(other.cuts for other in others):
                return "others have not let go of it yet"
            if not ask.more or device.has_room(ask.more):
                return None
            device.give_way()
        except (DeviceError, OSError) as error:
            return str(error)
        return "it is still in use"
