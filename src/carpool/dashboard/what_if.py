"""Comparison of policies: the daemon's last hours, simulated under the present policy and under another.

`carpool simulate` runs in a process of its own.  The simulation works from jobs and runs, not from actual turns.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from carpool.dashboard.past_jobs import MOST_JOBS, PastJobs, past_jobs
from carpool.dashboard.simulator import (
    Simulated,
    SimulatedFigures,
    WhatIf,
    WhatIfAnswer,
    WhatIfError,
    WhatIfFigure,
    WhatIfRun,
    read_lanes,
    simulate,
)
from carpool.protocol.paths import Home, path_of_policy
from carpool.protocol.predictions import DamagedChecks, check_words, read_checks
from carpool.protocol.setting_text import setting_text

__all__ = ["WhatIf", "WhatIfAnswer", "WhatIfError", "what_if"]

LIMIT_S = 60.0
LIKE = (
    "both sides are simulated from the same jobs, so that like is compared with like; the simulator knows how long"
    " each job takes, which the daemon has to learn"
)
TRUST = "how far to trust these figures: "
#: As many replicas are simulated as may take this time, estimated from the first simulation; fewer give no ranges.
RANGES_S = 6.0
FEWEST_REPLICAS, MOST_REPLICAS = 5, 20
RANGED = (
    "figures are means of {} simulations, with their 5th to 95th percentile: start-ups and paces are drawn from how far"
    " they have differed between jobs of one name; the pictures show the jobs as they were"
)
UNRANGED = "these jobs take too long to simulate several times, so the figures have no ranges; fewer hours have them"
_ONE_AT_A_TIME = asyncio.Semaphore(1)


async def what_if(home: Path, request: WhatIf) -> WhatIfAnswer:
    """Simulate both policies.  Raises WhatIfError, also while one is being computed.  Cancelling leaves no process."""
    if _ONE_AT_A_TIME.locked():
        text = "another what-if of this page is being computed"
        raise WhatIfError(429, "busy", text, "try again when that one has finished")
    async with _ONE_AT_A_TIME:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await _what_if(Home(home), request)
        except TimeoutError:
            text = f"the simulation takes longer than {LIMIT_S:g} s"
            raise WhatIfError(504, "too_long", text, "ask for fewer hours, or use carpool simulate") from None


async def _what_if(home: Home, request: WhatIf) -> WhatIfAnswer:
    with tempfile.TemporaryDirectory(prefix="carpool-what-if-") as name:
        directory = Path(name)
        past = await past_jobs(home, request.hours, directory)
        now = _Side(past.policy.name, past.policy.placement, past.policy.settings)
        then = _Side(request.policy, request.placement or now.placement, {**now.settings, **request.settings})
        (now_run, notes), (then_run, more) = await _sides(past, now, then, directory)
        told = [LIKE, *_trust(home), *past.notes, *_about(past, now_run), *notes, *more]
        return WhatIfAnswer(now_run, then_run, list(dict.fromkeys(told)))


@dataclass(frozen=True, slots=True)
class _Side:
    policy: str
    placement: str
    settings: Mapping[str, int | None]


Told = tuple[WhatIfRun, Sequence[str]]


async def _sides(past: PastJobs, now: _Side, then: _Side, directory: Path) -> tuple[Told, Told]:
    """Simulate one side after the other, or both in one process if only the policies differ.

    The present policy is always simulated along, so that settings of its own are known.
    """
    policies = list(dict.fromkeys([then.policy, now.policy]))
    asked = await _simulated(past, then, policies, directory)
    if now.policy != then.policy and (now.placement, now.settings) == (then.placement, then.settings):
        return asked[1], asked[0]
    return (await _simulated(past, now, [now.policy], directory))[0], asked[0]


async def _simulated(past: PastJobs, side: _Side, policies: Sequence[str], directory: Path) -> list[Told]:
    """Simulate the jobs as they were, for the pictures, then replicas of them, for the figures."""
    runs = directory / "runs.csv"
    common = _arguments(past, side, policies)
    found = await simulate([*common, f"--runs-csv={runs}"])
    ranged = await _ranged(common, found)
    names = [device.id for device in past.devices.devices]
    paths = [path_of_policy(runs, policy, policies) for policy in policies]
    lanes = [await asyncio.to_thread(read_lanes, path, names) for path in paths]
    told = [*found.notes, *ranged.notes]
    return [(WhatIfRun(row.policy, _figures(row), each), told) for row, each in zip(ranged.rows, lanes, strict=True)]


def _arguments(past: PastJobs, side: _Side, policies: Sequence[str]) -> list[str]:
    return [
        *past.source,
        *(f"--policy={policy}" for policy in policies),
        *("--lanes", f"--limit={MOST_JOBS}", f"--placement={side.placement}"),
        *(f"--devices={len(past.devices.devices)}", f"--device-memory={_memory(past)}B"),
        f"--store={past.devices.store.budget_bytes}B",
        *(f"--set={text}" for text in _settings(side)),
    ]


async def _ranged(common: Sequence[str], found: Simulated) -> Simulated:
    """Return the rows with ranges, or as they were found if that would take too long; with a note."""
    if not any(row.jobs for row in found.rows):  # engines alone, of which nothing is drawn
        return Simulated(found.rows, [])
    once_s = sum(row.jobs / row.jobs_per_second_simulated for row in found.rows if row.jobs)
    count = min(MOST_REPLICAS, int(RANGES_S / max(once_s, RANGES_S / MOST_REPLICAS)))
    if count < FEWEST_REPLICAS:
        return Simulated(found.rows, [UNRANGED])
    ranged = await simulate([*common, f"--replicas={count}", "--spread=measured"])
    return Simulated(ranged.rows, [RANGED.format(count), *ranged.notes])


def _settings(side: _Side) -> list[str]:
    """Return settings that have a value, without the store, which has an option, and limits of users and groups."""
    chosen = ((name, value) for name, value in side.settings.items() if name != "host_store" and "." not in name)
    return [setting_text(name, value) for name, value in chosen if value is not None]


def _memory(past: PastJobs) -> int:
    return min(device.capacity_bytes for device in past.devices.devices)


def _trust(home: Home) -> list[str]:
    """Return the note on how good the simulator's last prediction for this server was, if any has been checked."""
    try:
        checks = read_checks(home.predictions)
    except DamagedChecks as error:
        return [f"how good the simulator's predictions are is not known: {error}"]
    return [f"{TRUST}{check_words(checks[-1])}"] if checks else []


def _about(past: PastJobs, run: WhatIfRun) -> list[str]:
    found = []
    if len({device.capacity_bytes for device in past.devices.devices}) > 1:
        found.append("devices differ; all are taken to have the memory of the smallest")
    if run.figures["jobs"].value == MOST_JOBS:
        found.append(f"no more than {MOST_JOBS:,} jobs are simulated; there may be others")
    return found


def _figures(row: SimulatedFigures) -> dict[str, WhatIfFigure]:
    jobs = {name: row.figure(*about) for name, about in _OF_JOBS.items()}
    return jobs | row.figures_of_engines(_OF_ENGINES)


#: Field of the simulator's answer, unit, and text, by the name of the figure.
_OF_JOBS = {
    "mean_jct": ("avg_jct_s", "s", "from submission to end, on average"),
    "p95_jct": ("p95_jct_s", "s", "95 % of the jobs have ended so soon after their submission"),
    "mean_wait": ("avg_waiting_s", "s", "time without the turn, on average"),
    "utilization": ("utilization", "%", "share of the devices' time in use"),
    "makespan": ("makespan_s", "s", "from the first submission to the last end"),
    "jobs": ("jobs", "", "jobs that were simulated"),
    "refused": ("refused", "", "jobs that fit on no device"),
}
_OF_ENGINES = {
    "engines_p50": ("p50_s", "s", "of engines: half of the requests were answered so soon"),
    "engines_p99": ("p99_s", "s", "of engines: 99 % of the requests were answered so soon"),
}
