"""Requests and answers about another policy."""

from __future__ import annotations

from typing import Annotated

import msgspec

from carpool.protocol.api import ErrorInfo

MOST_HOURS = 24 * 31


class WhatIf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that were submitted in the last ``hours``, under another policy.  ``settings``: those that are to differ."""

    policy: str
    placement: str | None = None  # null: the present one
    settings: dict[str, int | None] = {}
    hours: Annotated[float, msgspec.Meta(gt=0, le=MOST_HOURS)] = 24.0


class WhatIfFigure(msgspec.Struct, frozen=True):
    """``value`` null: there is no job for the figure."""

    value: float | None
    unit: str  # "s", "%" or ""
    text: str  # explains the figure to users


class WhatIfLane(msgspec.Struct, frozen=True):
    """``runs``: begin, end, and the job; in microseconds since the first submission, one after the other."""

    device: str
    lane: int
    runs: list[tuple[int, int, int]]


class WhatIfRun(msgspec.Struct, frozen=True):
    """The jobs under one policy, simulated."""

    policy: str
    figures: dict[str, WhatIfFigure]
    lanes: list[WhatIfLane]


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """``now``: under the present policy; simulated as well, so that like is compared with like."""

    now: WhatIfRun
    then: WhatIfRun
    notes: list[str]


class WhatIfError(Exception):
    """There is no answer.  ``status``: of HTTP."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.info = status, ErrorInfo(code, message, hint)
