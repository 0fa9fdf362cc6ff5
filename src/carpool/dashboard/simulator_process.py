"""`carpool simulate` as a process of its own, which ends when its caller is cancelled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from carpool.dashboard.what_if_messages import WhatIfError
from carpool.protocol.api import ErrorBody

LONGEST_NOTE = 500  # characters


class SimulatedFigures(msgspec.Struct, frozen=True):
    """The fields of a row of `carpool simulate --json` that are used."""

    policy: str
    jobs: int
    refused: int
    avg_jct_s: float | None
    p95_jct_s: float | None
    avg_waiting_s: float | None
    makespan_s: float
    utilization: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """``rows``: by policy, in the order of the request; ``notes``: lines of standard error."""

    rows: Sequence[SimulatedFigures]
    notes: Sequence[str]


async def simulate(arguments: Sequence[str]) -> Simulated:
    """Simulate.  Raises WhatIfError with the simulator's own text.  A cancelled call leaves no process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "carpool.cli", "simulate", "--json", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        raise
    said = err.decode(errors="replace").splitlines()
    if process.returncode:
        raise _error(said, process.returncode)
    return Simulated(_rows(out), [line[:LONGEST_NOTE] for line in said])


def _rows(out: bytes) -> list[SimulatedFigures]:
    """Decode the rows: one policy is an object, several are a list."""
    text = out if out.lstrip().startswith(b"[") else b"[" + out + b"]"
    return msgspec.json.decode(text, type=list[SimulatedFigures])


def _error(said: Sequence[str], code: int) -> WhatIfError:
    """Return the simulator's own error, which is the last line, as a WhatIfError."""
    last = said[-1] if said else ""
    try:
        info = msgspec.json.decode(last, type=ErrorBody).error
    except msgspec.DecodeError:
        return WhatIfError(500, "simulation", f"carpool simulate ended with {code}: {last[:LONGEST_NOTE]}")
    return WhatIfError(400, info.code, info.message, info.hint)
