"""Reading and writing seats in the core's terms."""

from __future__ import annotations

import os
from dataclasses import replace

from carpool.core.model import Cause, Memory, MemoryClass, Micros, Usage
from carpool.daemon.jobs.seat_table import Board
from carpool.daemon.jobs.table import Job
from carpool.daemon.system.clock import monotonic_us
from carpool.devices import memfd
from carpool.protocol.seat import HEADER_BYTES, SEAT_BYTES, Grow, Seat, Yield

LARGEST = 1 << 53  # sums of such numbers still fit into the journal
_LARGEST_WORD = (1 << 32) - 1
_CAUSES = {1: Cause.BOUNDARY, 2: Cause.EARLY, 3: Cause.FORCED, 4: Cause.EXIT}


def cause_of(number: int) -> Cause:
    """What a job says about the end of its turn; anything unknown counts as a boundary."""
    return _CAUSES.get(number, Cause.BOUNDARY)


def usage_of(job: Job, now: Micros) -> Usage:
    """The counters of a job with a seat.  The present turn counts as far as it has lasted.

    ``fixed`` includes what the job's secondary processes may have.

    The job can write anything there, and others share the device's figures: what cannot be is bounded by what can.
    """
    seated = job.seated
    assert seated is not None
    store = os.fstat(seated.store_fd)
    usage = _usage(seated.seat, now, store.st_size, memfd.pages_of(store), max(0, now - seated.since_us))
    return replace(usage, fixed=usage.fixed + job.driver_bytes)


def turn_us(seat: Seat, now: Micros) -> Micros:
    """How long the job has had the turn in all, the present one included."""
    now = min(now, seat.get("paused_us") or now)
    present = max(0, now - min(seat.get("turn_start_us"), LARGEST)) if seat.get("turn") else 0
    return min(min(seat.get("held_us"), LARGEST) + present, LARGEST)


def _usage(seat: Seat, now: Micros, size: int = LARGEST, kept: int = LARGEST, lasted: Micros = LARGEST) -> Usage:
    """``size`` bytes of a store of which ``kept`` exist, and how long the job has its seat: no counter exceeds them."""

    def get(name: str, most: int = LARGEST) -> int:
        return min(seat.get(name), most)

    return Usage(
        persistent_live=get("p_live"),
        persistent_peak=get("p_peak"),
        ephemeral_live=get("e_live"),
        ephemeral_peak=get("e_peak"),
        iterations=get("iterations"),
        device_us=turn_us(seat, now),
        progress_done=get("progress_done"),
        progress_total=get("progress_total"),
        switch_cost_us=get("switch_us"),
        residue=get("residue"),
        stored=get("stored", size),
        kept=get("store_bytes", kept),
        out_bytes=get("out_bytes"),
        out_us=get("out_us", lasted),
        in_bytes=get("in_bytes"),
        in_us=get("in_us", lasted),
        fixed=get("fixed"),
    )


def seat_at_end(record: str) -> Seat | None:
    """From ``exit.json``, which belongs to the job's owner: None unless it holds the bytes of a seat."""
    try:
        data = bytes.fromhex(record)
    except ValueError:
        return None
    return Seat(memoryview(bytes(HEADER_BYTES) + data), 0) if len(data) == SEAT_BYTES else None


def usage_at_end(record: str) -> Usage | None:
    """The counters in ``exit.json``, if it holds any."""
    seat = seat_at_end(record)
    return None if seat is None else _usage(seat, monotonic_us())


def grant_turn(board: Board, seat: Seat) -> None:
    """The order matters: what was asked of an earlier turn must not end this one or hand it to anybody."""
    seat.set("yield", Yield.NO)
    seat.set("watch", 0)
    seat.set("successor", 0)
    seat.set("paused_us", 0)
    seat.set("turn_start_us", monotonic_us())
    seat.set("turn", 1)
    board.wake(seat, "turn")
    board.ring(seat)


def request_yield(board: Board, seat: Seat, how: Yield) -> None:
    _ask(board, seat, "yield", how)


def set_grace(seat: Seat, grace: Micros) -> None:
    seat.set("grace_us", max(0, min(grace, _LARGEST_WORD)))


def watch_idle(board: Board, seat: Seat, grace: Micros) -> None:
    set_grace(seat, grace)
    _ask(board, seat, "watch", 1)


def withdraw_yield(seat: Seat) -> None:
    seat.set("watch", 0)
    seat.set("yield", Yield.NO)


def _ask(board: Board, seat: Seat, word: str, value: int) -> None:
    seat.set(word, value)
    board.ring(seat)
    if seat.get("turn") == 0:
        # It let go just before we asked; what is asked of one turn must not end the next.
        seat.set(word, 0)


def set_limits(seat: Seat, memory: Memory) -> None:
    seat.set("p_limit", memory.persistent)
    seat.set("e_limit", memory.ephemeral)


def lower_limits(seat: Seat, memory: Memory) -> None:
    """What is less than before counts at once."""
    seat.set("p_limit", min(seat.get("p_limit"), memory.persistent))
    seat.set("e_limit", min(seat.get("e_limit"), memory.ephemeral))


def is_answered(seat: Seat, grow_seq: int) -> bool:
    """Request ``grow_seq`` for memory, or a later one.  Numbers are 32 bits wide and begin anew."""
    return (seat.get("grow_ack") - grow_seq) & 0xFFFFFFFF < 1 << 31


def is_before(one: int, other: int) -> bool:
    """Whether a request has a lower number than another."""
    return 0 < (other - one) & 0xFFFFFFFF < 1 << 31


def needed(seat: Seat, kind: MemoryClass) -> int:
    """Bytes that a job must not lose: what it may use, or has used and gets back before its next turn."""
    words = ("p_limit", "p_used", "stored") if kind is MemoryClass.PERSISTENT else ("e_limit", "e_peak")
    return max(min(seat.get(word), LARGEST) for word in words)


def answer_growth(board: Board, seat: Seat, answer: Grow, grow_seq: int) -> None:
    """Answer request ``grow_seq`` for memory; limits have been written before."""
    seat.set("grow_status", answer)
    seat.set("grow_ack", grow_seq)
    board.wake(seat, "grow_ack")
