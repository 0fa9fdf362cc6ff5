"""Processes that come to their seats, and leave them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from carpool.core.events import Attached, Detached, Event, Sampled
from carpool.core.model import JobId
from carpool.daemon.boards import BoardError
from carpool.daemon.clock import monotonic_us
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.pidwatch import PidWatch
from carpool.daemon.seating import Seating
from carpool.daemon.seats import usage_of
from carpool.daemon.turns import Turns
from carpool.devices.base import DeviceError
from carpool.protocol.seat import PROTOCOL, Packet, PacketType

log = logging.getLogger(__name__)
ANOTHER_ATTACHED, OTHER_VERSION = 1, 2


class Attaching:
    """``send`` and ``drain`` are those of the job's channel; ``granted`` gives it what it has been granted before."""

    def __init__(self, jobs: JobTable, seating: Seating, turns: Turns, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._seating = seating
        self._turns = turns
        self._post = post
        self._watches: dict[JobId, PidWatch] = {}
        self.send: Callable[[JobId, Packet, list[int]], None]
        self.drain: Callable[[Job], None]
        self.granted: Callable[[Job], None]
        self.forget: Callable[[JobId], None]

    def hello(self, job: Job, packet: Packet) -> None:
        """A process of the job wants a seat; it waits for the answer."""
        if packet.a != PROTOCOL:
            log.warning("job %d speaks protocol %d of the seats, this daemon %d", job.id, packet.a, PROTOCOL)
            self.send(job.id, Packet(PacketType.REFUSED, a=OTHER_VERSION), [])
            return
        watch = self._watches.get(job.id)
        if job.seated is not None and packet.pid != job.seated.pid and watch is not None and watch.over:
            self.detach(job)  # the watch would have told us in a moment
        if job.seated is not None:
            self._hello_again(job, packet)
        else:
            self._seat(job, packet.pid)

    def watch(self, job: Job) -> None:
        """Notice the end of the attached process."""
        self.unwatch(job.id)
        if job.seated is not None:
            self._watches[job.id] = PidWatch(job.seated.pid, lambda: self._gone(job.id))

    def unwatch(self, job: JobId) -> None:
        watch = self._watches.pop(job, None)
        if watch is not None:
            watch.stop()

    def detach(self, job: Job) -> None:
        """The attached process is gone.  What it said before it went counts; then its turn is found or freed."""
        leaving = job.seated
        self.drain(job)
        if job.seated is not leaving:
            return  # what it said last was a successor's HELLO, which has settled everything, and sits there now
        self.unwatch(job.id)
        if job.seated is None:
            return
        self._turns.settle_dead(job)
        job.usage = usage_of(job.seated, monotonic_us())
        self._post(Sampled(job.id, job.usage))
        self._seating.unseat(job)
        self.forget(job.id)
        self._post(Detached(job.id))

    def _seat(self, job: Job, pid: int) -> None:
        try:
            if job.lane is None:
                raise BoardError("it belongs to no lane yet")
            fds = self._seating.seat(job, pid)
        except (BoardError, DeviceError) as error:
            log.error("cannot seat job %d: %s", job.id, error)
            self.send(job.id, Packet(PacketType.REFUSED, a=ANOTHER_ATTACHED), [])
            return
        self.send(job.id, self._seating.setup_packet(job), fds)
        self.granted(job)
        self._post(Attached(job.id))
        self.watch(job)

    def _hello_again(self, job: Job, packet: Packet) -> None:
        """Another process of the job; or the same one, whose answer an earlier daemon did not get round to."""
        seated = job.seated
        assert seated is not None
        if packet.pid != seated.pid:
            self.send(job.id, Packet(PacketType.REFUSED, a=ANOTHER_ATTACHED), [])
        elif seated.seat.get("pid") == 0:
            self.send(job.id, self._seating.setup_packet(job), self._seating.setup_fds(job))
            job.found = False  # it has nothing yet
            self.granted(job)

    def _gone(self, job_id: JobId) -> None:
        job = self._jobs.live.get(job_id)
        if job is not None:
            self.detach(job)
