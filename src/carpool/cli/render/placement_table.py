"""Why a job is on its device, or on none: the table of ``carpool show --why``."""

from __future__ import annotations

from carpool.cli.render.style import stdout_style
from carpool.cli.render.table import table
from carpool.protocol.api import PlacementInfo, PlacementRow
from carpool.protocol.escaping import escaped
from carpool.protocol.units import format_size

HEADER = ("DEVICE", "VERDICT", "FREE", "NEED", "MARGIN", "JOBS", "WARMING", "SMACT", "RISK", "SLOWDOWN", "KEY")


def explain_placement(placement: PlacementInfo) -> list[str]:
    """A sentence, the devices in the order in which they are tried, and what they said."""
    style = stdout_style()
    chosen = [row.device for row in placement.rows if row.chosen]
    strict = ", strict" if placement.strict else ""
    what = f"placed on {', '.join(chosen)}" if chosen else "waits; devices as they are now"
    lines = [f"job {placement.job} {what} (placement {style.bold(placement.policy)}{strict})"]
    if placement.rows:
        lines += table(HEADER, [_cells(row) for row in placement.rows], style, None)
    return [*lines, *(f"{row.device}: {escaped(text)}" for row in placement.rows for text in _remarks(row) if text)]


def _cells(row: PlacementRow) -> tuple[str, ...]:
    load = row.load
    risks = () if load is None else (load.risk_active_ppm, load.risk_occupancy_ppm, load.risk_dram_ppm)
    return (
        row.device,
        _verdict(row),
        *(format_size(size) for size in (row.free, row.need, row.margin)),
        ",".join(map(str, row.jobs)) or "-",
        ",".join(map(str, row.warming)) or "-",
        "-" if load is None else _share(load.active_ppm),
        "/".join(map(_share, risks)) or "-",
        _share(row.slowdown_ppm),
        ",".join(map(str, row.key)),
    )


def _verdict(row: PlacementRow) -> str:
    if row.chosen:
        return "chosen"
    return f"no: {row.refusal.code}" if row.refusal is not None else "possible"


def _share(ppm: int | None) -> str:
    return "-" if ppm is None else f"{ppm / 1e6:.2f}"


def _remarks(row: PlacementRow) -> list[str]:
    texts = [] if row.refusal is None else [row.refusal.text]
    if row.reluctance is not None and row.reluctance.text and row.reluctance != row.refusal:
        texts.append(f"tried last: {row.reluctance.text}")
    return texts
