"""All words of a seat at once, by one `struct.unpack_from` instead of a call for each word."""

from __future__ import annotations

from typing import NamedTuple


class SeatWords(NamedTuple):
    """The words of ``native/seat.h`` in their order, under the names of `carpool.protocol.seat.FIELDS`.

    ``yield_`` is the word ``yield``.
    """

    turn: int
    bell: int
    yield_: int
    successor: int
    want: int
    passed_to: int
    pid: int
    grace_us: int
    p_limit: int
    e_limit: int
    grow_seq: int
    grow_ack: int
    grow_status: int
    offload: int
    p_live: int
    p_peak: int
    e_live: int
    e_peak: int
    p_used: int
    iterations: int
    progress_done: int
    progress_total: int
    turns: int
    held_us: int
    turn_start_us: int
    residue: int
    residue_total: int
    switch_us: int
    cause: int
    boundary_us: int
    first_use_us: int
    traps: int
    early: int
    forced: int
    coming: int
    promoted: int
    passed_seq: int
    offloaded: int
    grow_class: int
    lane: int
    grow_total: int
    watch: int
    offload_error: int
    bank: int
    stored: int
    store_bytes: int
    out_bytes: int
    out_us: int
    in_bytes: int
    in_us: int
    resume_us: int
    demanded: int
    traits: int
    whole: int
    fixed: int
    close_lane: int
    paused: int
    leave: int
    out_of_memory: int
    pause_seq: int
    demand_seq: int
    weights: int
    weights_bytes: int
    reload_us: int
    compute_us: int
    deadline_us: int
    placed_seq: int
    placed: int
    paused_us: int
    ahead_us: int
    others: int
