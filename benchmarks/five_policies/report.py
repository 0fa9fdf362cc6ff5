"""The table and the verdict, as text."""

from __future__ import annotations

import statistics

from benchmarks.five_policies.results import Round

MIB = 1 << 20
HEADERS = (
    "round", "makespan", "mean JCT", "p95 JCT", "queueing", "switches", "overhead", "residue", "peak memory",
)  # fmt: skip


def row(result: Round) -> tuple[str, ...]:
    times = (result.makespan_s, result.mean_jct_s, result.p95_jct_s, result.mean_queueing_s)
    return (result.name, *(f"{seconds:.1f} s" for seconds in times), *_sharing(result))


def _sharing(result: Round) -> tuple[str, ...]:
    """Switches, their cost in all (and as a share of the makespan), mean residue per switch, memory granted at most."""
    timeline = result.timeline
    if timeline is None:
        return ("-", "-", "-", "-")
    cost_s = sum(switch.cost_us for switch in timeline.switches) / 1e6
    residue = statistics.fmean(switch.residue for switch in timeline.switches) if timeline.switches else 0.0
    overhead = f"{cost_s * 1000:.0f} ms ({cost_s / result.makespan_s:.1%})"
    return (str(len(timeline.switches)), overhead, f"{residue / MIB:.2f} MiB", f"{timeline.peak_bytes / MIB:.0f} MiB")


def table(rounds: list[Round]) -> str:
    rows = [HEADERS, *(row(result) for result in rounds)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADERS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def completion_table(rounds: list[Round]) -> str:
    """JCT of every job in every round, in seconds."""
    names = [job.name for job in rounds[0].jobs]
    lines = ["JCT in s".ljust(12) + "".join(name.rjust(9) for name in names)]
    lines += [result.name.ljust(12) + "".join(f"{job.completion_s:9.1f}" for job in result.jobs) for result in rounds]
    return "\n".join(lines)


def peaks_together(rounds: list[Round]) -> int:
    """What all jobs would need if each kept its own P and E peak on the device at once: bytes."""
    return max((sum(p + e for p, e in result.peaks.values()) for result in rounds), default=0)


def memory_table(rounds: list[Round], capacity: int) -> str:
    """Measured peaks per job against the device."""
    shared = [result for result in rounds if result.peaks]
    if not shared:
        return ""
    peaks = shared[-1].peaks
    lines = [f"{name:10} P {p / MIB:7.1f} MiB   E {e / MIB:7.1f} MiB" for name, (p, e) in peaks.items()]
    total = f"together   {peaks_together(shared) / MIB:9.1f} MiB on a device of {capacity / MIB:.0f} MiB"
    return "\n".join([*lines, total])
