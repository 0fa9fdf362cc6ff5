"""Reading and writing seats in the terms of the core, and the sampler, which reads them a few times a second."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

from carpool.core.events import Event, Sampled, TraitsSeen
from carpool.core.model import Cause, JobPhase, Memory, MemoryClass, Micros, Usage
from carpool.daemon.jobs.constraints import LENDS, SEVERAL, TELLING, why_exclusive, why_pinned
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.clock import monotonic_us
from carpool.devices import memfd
from carpool.protocol.seat import HEADER_BYTES, SEAT_BYTES, Grow, Seat, SeatWords, Trait, Yield

LARGEST = 1 << 53  # sums of such numbers still fit into the journal
_LARGEST_WORD = (1 << 32) - 1
_CAUSES = {1: Cause.BOUNDARY, 2: Cause.EARLY, 3: Cause.FORCED, 4: Cause.EXIT}
INTERVAL_S = 0.2


def cause_of(number: int) -> Cause:
    """Return the cause that a job reports for the end of its turn; an unknown value counts as a boundary."""
    return _CAUSES.get(number, Cause.BOUNDARY)


def usage_of(job: JobRecord, now: Micros) -> Usage:
    """Return the counters of a job with a seat.  The present turn counts as far as it has lasted.

    ``fixed`` includes what the job's secondary processes may have.

    The job can write any value into its seat, and others share the device's figures, so impossible values are bounded.
    """
    return usage_in(job, job.attached.seat.snapshot(), now)


def usage_in(job: JobRecord, words: SeatWords, now: Micros) -> Usage:
    """Return the same counters as `usage_of`, from words that have been read."""
    seated = job.attached
    store = os.fstat(seated.store_fd)
    usage = _usage(words, now, store.st_size, memfd.pages_of(store), max(0, now - seated.since_us))
    return replace(usage, fixed=usage.fixed + job.driver_bytes)


def turn_us(words: SeatWords, now: Micros) -> Micros:
    """Return the total turn time of the job, including the present turn."""
    now = min(now, words.paused_us or now)
    present = max(0, now - min(words.turn_start_us, LARGEST)) if words.turn else 0
    return min(min(words.held_us, LARGEST) + present, LARGEST)


def _usage(words: SeatWords, now: Micros, size: int = LARGEST, kept: int = LARGEST, lasted: Micros = LARGEST) -> Usage:
    """Return the counters, bounded by ``size`` (bytes of a store), ``kept`` (those that exist) and the seat's time."""
    return Usage(
        persistent_live=min(words.p_live, LARGEST),
        persistent_peak=min(words.p_peak, LARGEST),
        ephemeral_live=min(words.e_live, LARGEST),
        ephemeral_peak=min(words.e_peak, LARGEST),
        iterations=min(words.iterations, LARGEST),
        device_us=turn_us(words, now),
        progress_done=min(words.progress_done, LARGEST),
        progress_total=min(words.progress_total, LARGEST),
        switch_cost_us=words.switch_us,
        residue=min(words.residue, LARGEST),
        stored=min(words.stored, size),
        kept=min(words.store_bytes, kept),
        out_bytes=min(words.out_bytes, LARGEST),
        out_us=min(words.out_us, lasted),
        in_bytes=min(words.in_bytes, LARGEST),
        in_us=min(words.in_us, lasted),
        fixed=min(words.fixed, LARGEST),
    )


def words_at_end(record: str) -> SeatWords | None:
    """Parse the seat in ``exit.json``, which belongs to the job's owner; None unless it holds the bytes of a seat."""
    try:
        data = bytes.fromhex(record)
    except ValueError:
        return None
    return Seat(memoryview(bytes(HEADER_BYTES) + data), 0).snapshot() if len(data) == SEAT_BYTES else None


def usage_at_end(words: SeatWords) -> Usage:
    """Return the counters in ``exit.json``."""
    return _usage(words, monotonic_us())


def grant_turn(board: Board, seat: Seat) -> None:
    """Grant a turn.  The order matters: requests made of an earlier turn must not end this one or hand it over."""
    seat.set("yield", Yield.NO)
    seat.set("watch", 0)
    seat.set("successor", 0)
    seat.set("paused_us", 0)
    seat.set("turn_start_us", monotonic_us())
    seat.set("turn", 1)
    board.wake(seat, "turn")
    board.notify(seat)


def request_yield(board: Board, seat: Seat, how: Yield) -> None:
    """Ask the job for its turn; a job that has just given it back is not asked for its next turn."""
    _ask(board, seat, "yield", how)


def set_grace(seat: Seat, grace: Micros) -> None:
    """Set how long an idle holder keeps its turn."""
    seat.set("grace_us", max(0, min(grace, _LARGEST_WORD)))


def watch_idle(board: Board, seat: Seat, grace: Micros) -> None:
    """Ask the job to give its turn back once it has been idle for ``grace``."""
    set_grace(seat, grace)
    _ask(board, seat, "watch", 1)


def withdraw_yield(seat: Seat) -> None:
    """Withdraw the requests for the job's turn: it may keep the turn, also when idle."""
    seat.set("watch", 0)
    seat.set("yield", Yield.NO)


def _ask(board: Board, seat: Seat, word: str, value: int) -> None:
    seat.set(word, value)
    board.notify(seat)
    if seat.get("turn") == 0:
        # The job gave its turn back just before; a request about one turn must not end the next.
        seat.set(word, 0)


def set_limits(seat: Seat, memory: Memory) -> None:
    """Set the bytes that the job may use from now on."""
    seat.set("p_limit", memory.persistent)
    seat.set("e_limit", memory.ephemeral)


def lower_limits(seat: Seat, memory: Memory) -> None:
    """Lower the limits to ``memory`` at once where it is less than before; raise none."""
    seat.set("p_limit", min(seat.get("p_limit"), memory.persistent))
    seat.set("e_limit", min(seat.get("e_limit"), memory.ephemeral))


def live_bytes(seat: Seat) -> int:
    """Return the bytes of the job's tensors as reported in its seat, bounded to a possible value."""
    return min(seat.get("p_live") + seat.get("e_live"), LARGEST)


def is_answered(seat: Seat, grow_seq: int) -> bool:
    """Return whether request ``grow_seq`` for memory, or a later one, is answered.  Numbers wrap around at 32 bits."""
    return (seat.get("grow_ack") - grow_seq) & 0xFFFFFFFF < 1 << 31


def is_before(one: int, other: int) -> bool:
    """Return whether a request has a lower number than another."""
    return 0 < (other - one) & 0xFFFFFFFF < 1 << 31


def needed(seat: Seat, kind: MemoryClass) -> int:
    """Return the bytes that a job must not lose: what it may use, or has used and gets back before its next turn."""
    words = seat.snapshot()
    if kind is MemoryClass.PERSISTENT:
        return min(max(words.p_limit, max(words.p_used, words.stored) + words.handles), LARGEST)
    return min(max(words.e_limit, words.e_peak), LARGEST)


def answer_growth(board: Board, seat: Seat, answer: Grow, grow_seq: int) -> None:
    """Answer request ``grow_seq`` for memory; limits have been written before."""
    seat.set("grow_status", answer)
    seat.set("grow_ack", grow_seq)
    board.wake(seat, "grow_ack")


class Sampler:
    """Samples the seats for as long as the daemon runs."""

    def __init__(self, jobs: JobTable, post: Callable[[Event], None]) -> None:
        self._jobs = jobs
        self._post = post

    async def run(self) -> None:
        """Sample the seats of all jobs that have been placed, for ever."""
        queued = JobPhase.QUEUED
        while True:
            await asyncio.sleep(INTERVAL_S)
            for job in [job for job in self._jobs.live.values() if job.phase is not queued]:
                self.sample(job)

    def sample(self, job: JobRecord) -> None:
        """Report only changes to the core: a job that sleeps costs nothing."""
        tell_constraints(job, self._post)
        if job.seated is None:
            return
        usage = usage_of(job, monotonic_us())
        if usage != job.usage:
            job.usage = usage
            self._post(Sampled(job.id, usage))


def tell_constraints(job: JobRecord, post: Callable[[Event], None]) -> None:
    """Report to the core what the job's use of its device rules out, once per change."""
    traits = 0 if job.seated is None else job.seated.seat.get("traits") & TELLING
    traits |= SEVERAL if job.has_secondary else 0
    traits |= LENDS if job.driver_bytes and job.seated is not None else 0
    if (traits, job.ungated_pid) != (job.traits, job.ungated_told):
        job.traits, job.ungated_told = traits, job.ungated_pid
        job.passing = job.seated.seat.passing() if traits & Trait.UNGATED and job.seated is not None else ""
        post(TraitsSeen(job.id, why_exclusive(traits, job.ungated_pid, job.passing), why_pinned(traits)))
