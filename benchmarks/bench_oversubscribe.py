"""Copies that need 90 % of the device each, by how much of their time they compute on the CPU; and 1 to 8 copies."""

from __future__ import annotations

import statistics

from benchmarks.copies import DEVICE_MIB, MOST_MIB, Load, Rates, Together, apart, load, rates, together
from benchmarks.figures import Figure, median_figure, rounds_of
from carpool.protocol.api import DeviceRequest

#: What is measured -> phases, seconds of CPU work and of device work in each, target.  A phase lasts at least 20 times
#: as long as moving one copy out and the other in; the result says how long that takes.
MIXES = {"50 % CPU": (12, 1.2, 1.2, 0.75), "10 % CPU": (3, 1.2, 10.8, 0.97)}
#: Two of these fit side by side.
SMALL_MIB = 40
COPIES = (1, 2, 4, 8)


#: Under `tq` a device phase is one turn, as with nvshare.  Under `fair`, the default, turns are as short as the lower
#: bound allows, so that both copies' device phases end at about the same time, and less of their CPU work overlaps.
POLICIES = ("tq", "fair")


def run(quick: bool) -> list[Figure]:
    speed = rates()
    figures = [figure for name in MIXES for figure in _mix(name, speed, quick)]
    return [*figures, _fitting(quick), *_crowds(speed, quick)]


def _mix(name: str, speed: Rates, quick: bool) -> list[Figure]:
    phases, cpu_s, device_s, target = MIXES[name]
    work = load(speed, max(2, phases // (3 if quick else 1)), cpu_s, device_s)
    rounds = [_round(work, together_first=index % 2 == 1) for index in range(1 if quick else rounds_of(3))]
    return [
        _ratio(name, policy, [(alone, shared[policy]) for alone, shared in rounds], min(cpu_s, device_s), target)
        for policy in POLICIES
    ]


def _ratio(name: str, policy: str, rounds: list[tuple[float, Together]], phase_s: float, target: float) -> Figure:
    switches = [shared.switch_s for _, shared in rounds]
    detail = {
        "one_after_another_s": round(statistics.median(alone for alone, _ in rounds), 2),
        "together_s": round(statistics.median(shared.seconds for _, shared in rounds), 2),
        "switch_ms": round(max(switches) * 1e3, 1),
        "phase_per_switch": round(phase_s / max(switches), 1) if max(switches) else 0,
        "moved_mib": [shared.moved_mib for _, shared in rounds],
    }
    ratios = [shared.seconds / alone for alone, shared in rounds]
    label = f"two copies of {MOST_MIB} MiB on {DEVICE_MIB}, {name}, {policy}: time together / one after another"
    return median_figure(
        "oversubscribe", label, "ratio", ratios, target=target if policy == "tq" else None, detail=detail
    )


def _round(work: Load, together_first: bool) -> tuple[float, dict[str, Together]]:
    """One after another without Carpool, and together with it; who begins changes from round to round."""
    alone = 0.0 if together_first else apart(work)
    shared = {policy: together(work, policy=policy) for policy in POLICIES}
    return alone or apart(work), shared


def _fitting(quick: bool) -> Figure:
    """Where nothing needs to move, oversubscription must not cost anything."""
    work = load(rates(SMALL_MIB), 1, 0, 3 if quick else 12, SMALL_MIB)
    ratios, sides = [], []
    for index in range(1 if quick else rounds_of(5)):
        order = ("auto", "off") if index % 2 else ("off", "auto")
        runs = {mode: together(work, device=DeviceRequest(oversubscribe=mode)) for mode in order}
        if runs["auto"].moved_mib:
            raise RuntimeError("memory was moved although the copies fit together")
        ratios.append(runs["auto"].seconds / runs["off"].seconds)
        sides.append({mode: round(runs[mode].seconds, 2) for mode in order})
    label = f"two copies of {SMALL_MIB} MiB, which fit together: auto / off"
    return median_figure("oversubscribe", label, "ratio", ratios, target=1.01, detail={"seconds": sides})


def _crowds(speed: Rates, quick: bool) -> list[Figure]:
    """Completed work per second of 2, 4 and 8 copies, as a share of that of one."""
    work = load(speed, 1, 0, 3 if quick else 8)
    rounds = [{copies: _per_second(work, copies) for copies in COPIES} for _ in range(1 if quick else rounds_of(2))]
    figures = []
    for copies in COPIES[1:]:
        shares = [speeds[copies] / speeds[1] for speeds in rounds]
        detail = {"steps_per_s": [[round(speeds[1], 2), round(speeds[copies], 2)] for speeds in rounds]}
        label = f"{copies} copies that need the device each: completed work per second / one copy"
        target = 0.9 if copies == max(COPIES) else None
        figures.append(
            median_figure("oversubscribe", label, "ratio", shares, target=target, at_least=True, detail=detail)
        )
    return figures


def _per_second(work: Load, copies: int) -> float:
    return copies * work.steps / together(work, copies).seconds
