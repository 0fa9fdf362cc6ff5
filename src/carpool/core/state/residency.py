"""Where a job's memory is, as far as its limits tell.  Each state has the data valid in it.

The transitions are a table in `core.memory.residency`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from carpool.core.model import Memory

NOTHING = Memory()


class ResidencyState(StrEnum):
    """The states of a job's memory."""

    RESIDENT = "resident"
    LEAVING = "leaving"
    ASIDE = "aside"
    LEAVING_ASIDE = "leaving_aside"


@dataclass(frozen=True, slots=True)
class Resident:
    """All memory that the job has been granted is on the device."""

    state: ClassVar[ResidencyState] = ResidencyState.RESIDENT
    aside: ClassVar[bool] = False
    leaving: ClassVar[bool] = False
    stored: ClassVar[Memory] = NOTHING


@dataclass(frozen=True, slots=True)
class Leaving:
    """The job has been asked to move its persistent memory out (`Offload`); the answer is still to come."""

    state: ClassVar[ResidencyState] = ResidencyState.LEAVING
    aside: ClassVar[bool] = False
    leaving: ClassVar[bool] = True
    stored: ClassVar[Memory] = NOTHING


@dataclass(frozen=True, slots=True)
class Aside:
    """The job's limits have been lowered: its memory is in the host store, or its part of the lane was given up."""

    state: ClassVar[ResidencyState] = ResidencyState.ASIDE
    aside: ClassVar[bool] = True
    leaving: ClassVar[bool] = False
    stored: Memory  # its limits before; they have to be granted again before its next turn


@dataclass(frozen=True, slots=True)
class LeavingAside:
    """A part of the memory has been set aside already, and the rest has been asked to leave, too."""

    state: ClassVar[ResidencyState] = ResidencyState.LEAVING_ASIDE
    aside: ClassVar[bool] = True
    leaving: ClassVar[bool] = True
    stored: Memory


Residency = Resident | Leaving | Aside | LeavingAside
RESIDENT, LEAVING = Resident(), Leaving()


def set_aside(residency: Residency, stored: Memory) -> Aside | LeavingAside:
    """Return the state with ``stored`` set aside in all; whether the rest is leaving does not change."""
    return LeavingAside(stored) if residency.leaving else Aside(stored)
