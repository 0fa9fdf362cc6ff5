"""Explanation of a job's placement: the table of ``carpool show --why``, and the meaning of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from carpool.cli.render.columns import TableColumn, present
from carpool.cli.render.output import Output
from carpool.protocol.api import PlacementInfo, PlacementRow
from carpool.protocol.display import escaped
from carpool.protocol.units import format_size

#: Each column and its meaning; DEVICE needs no explanation.
COLUMNS = (
    (TableColumn("DEVICE"), ""),
    (TableColumn("VERDICT"), "chosen, possible, or the condition that the device does not meet"),
    (TableColumn("FREE", right=True), "memory of the device that is not reserved"),
    (TableColumn("NEED", right=True), "memory that would be reserved for the job there"),
    (TableColumn("MARGIN", right=True), "further memory that must stay free where the job shares the device"),
    (TableColumn("JOBS"), "jobs that are there already"),
    (TableColumn("WARMING"), "of these, jobs whose memory needs are not measured yet"),
    (
        TableColumn("SMACT", right=True, gives_way=1),
        "share of the last 30 seconds in which the device computed (1.00: all)",
    ),
    (TableColumn("RISK", gives_way=3), "risk of slowing each other down: computing/occupancy/memory bandwidth, 0 to 1"),
    (
        TableColumn("SLOWDOWN", right=True, gives_way=2),
        "largest slowdown that was measured beside one of the jobs there",
    ),
    (TableColumn("SORTED BY", gives_way=4), "value by which the placement policy sorts devices"),
)
#: Words for the numbers by which Carpool's own policies order devices; numbers of other policies are shown as they are.
_ORDERS: dict[str, tuple[Callable[[int], str], ...]] = {
    "magm": (lambda free: f"{format_size(-free)} free", lambda jobs: f"{jobs} job{'' if jobs == 1 else 's'}"),
    "lug": (lambda active: f"computes {active / 10_000:.0f} %", lambda free: f"{format_size(-free)} free"),
    "best-fit": (lambda free: f"{format_size(free)} free",),
    "round-robin": (lambda last: f"placement {last} was the last here" if last else "nothing was placed here yet",),
    "first-fit": (lambda place: f"device {place + 1} of the daemon",),
    "exclusive": (lambda place: f"device {place + 1} of the daemon",),
}


def explain_placement(placement: PlacementInfo, output: Output, name: str = "") -> list[str]:
    """Return a sentence, the devices in the order in which they are tried, remarks, and the meaning of the columns.

    ``name``: the job's name in the sentence, instead of its id.
    """
    chosen = [row.device for row in placement.rows if row.chosen]
    strict = ", strict" if placement.strict else ""
    what = f"placed on {', '.join(chosen)}" if chosen else "waits; devices as they are now"
    title = f"job {name or placement.job} {what} (placement {output.painted('bold', placement.policy)}{strict})"
    return [title, *_table(placement, output)] if placement.rows else [title]


def _table(placement: PlacementInfo, output: Output) -> list[str]:
    rows = [(*_cells(row, placement.elements), _order(placement.policy, row.key)) for row in placement.rows]
    remarks = [f"{row.device}: {escaped(text)}" for row in placement.rows for text in _remarks(row) if text]
    table = output.table([column for column, _ in COLUMNS], rows)
    return [*table, *output.wrapped(remarks), "", *_legend(rows, output)]


def _legend(rows: list[tuple[str, ...]], output: Output) -> list[str]:
    """Explain the columns that have content."""
    meant = [COLUMNS[n] for n in present([column for column, _ in COLUMNS], rows) if COLUMNS[n][1]]
    width = max(len(column.title) for column, _ in meant)
    return output.wrapped((f"{column.title:<{width}}  {meaning}" for column, meaning in meant), "dim", width + 2)


def _cells(row: PlacementRow, elements: Mapping[int, str]) -> tuple[str, ...]:
    load = row.load
    risks = () if load is None else (load.risk_active_ppm, load.risk_occupancy_ppm, load.risk_dram_ppm)
    return (
        row.device,
        _verdict(row),
        *(format_size(size) for size in (row.free, row.need, row.margin)),
        *(",".join(elements.get(job, str(job)) for job in jobs) or "-" for jobs in (row.jobs, row.warming)),
        "-" if load is None else _share(load.active_ppm),
        "/".join(map(_share, risks)) or "-",
        _share(row.slowdown_ppm),
    )


def _order(policy: str, key: Sequence[int]) -> str:
    words = _ORDERS.get(policy, ())
    if len(words) != len(key):
        return ", ".join(map(str, key))
    return ", ".join(word(number) for word, number in zip(words, key, strict=True))


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
