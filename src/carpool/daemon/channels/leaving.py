"""A seat follows its use: a process that has never used it leaves it to another one of its job that does."""

from __future__ import annotations

from carpool.daemon.jobs.table import Seated
from carpool.protocol.seat import Leave

#: None of these is zero any more once a process has come to use its device.
_SIGNS = ("turn", "turns", "want", "grow_seq", "p_peak", "e_peak", "traps", "fixed")


def may_leave(seated: Seated) -> bool:
    """As far as its seat says.  The process itself knows for certain, and is asked."""
    return seated.seat.get("leave") != Leave.STAYS and never_used(seated)


def never_used(seated: Seated) -> bool:
    """No memory, no turn, neither asked for."""
    return not any(seated.seat.get(name) for name in _SIGNS)


def ask_to_leave(seated: Seated) -> None:
    """It answers in its seat, and by a packet.  Asking again does no harm."""
    if seated.seat.get("leave") == Leave.NO:
        seated.seat.set("leave", Leave.ASKED)
    seated.board.ring(seated.seat)
