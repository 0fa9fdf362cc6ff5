"""Who slows whom, with real daemons and processes: measured, kept over a crash, and decisive for the next placement.

How fast processes really are beside each other on a machine of two cores is a matter of chance, so these jobs claim the
device time of their iterations in their seats, as libcarpool tells it.  All the rest is as it always is.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from carpool.cli.render.output import Output
from carpool.cli.render.placement_table import explain_placement
from carpool.core.events import PaceKnown, UseKnown
from carpool.core.state.slowdown_table import FRESH_US
from carpool.daemon.journal.history import HistoryKeeper
from carpool.daemon.journal.restart_record import PACES, CoreFigures, read_figures
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.system.clock import monotonic_us, wall_us
from carpool.protocol.api import PlacementInfo
from tests.daemon.daemon_harness import Daemon, Make
from tests.daemon.journal_file import opened, sql

SIDE_BY_SIDE = ("--device", "host:64MiB", "--device", "host:64MiB", "--policy", "pack", "--placement", "first-fit")
ALONE_US, SLOWED_US = 100_000, 180_000
ENOUGH_SAMPLES = 4  # the first may be of before, the second says where the rest begins


class Kind:
    """Jobs of one command line, whose iterations take as long as the test says."""

    def __init__(self, daemon: Daemon, directory: Path, name: str) -> None:
        self.daemon, self.path = daemon, directory / name
        self.takes(ALONE_US)

    def takes(self, each_us: int) -> None:
        """0: the jobs end.  Replaced at once: nobody reads half of it."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(str(each_us))
        draft.replace(self.path)

    def begins(self, device: str | None = None) -> int:
        self.takes(ALONE_US)
        return self.daemon.fake(
            "attach", f"claim:{self.path}", device=device, persistent_bytes=1 << 20, until="GrantTurn"
        )

    def ends(self, job: int) -> None:
        self.takes(0)
        assert self.daemon.wait(job)["outcome"] == "succeeded"


def sampled(daemon: Daemon, job: int) -> None:
    """Wait until the job's counters have been read some times from now on."""
    since = daemon.events()[-1]["seq"]
    seen = 0

    def enough(event: dict[str, object]) -> bool:
        nonlocal seen
        seen += event["kind"] == "Sampled" and event["job"] == job
        return seen >= ENOUGH_SAMPLES

    daemon.until_event(enough, since)


def told(daemon: Daemon) -> list[dict[str, object]]:
    """What the core of the present life has been told."""
    return [event["data"] for event in daemon.events() if event["kind"] == "PaceKnown"]


@pytest.fixture
def measured(make_daemon: Make, tmp_path: Path) -> tuple[Daemon, list[Kind]]:
    """x takes 1.8 times as long beside y, but not beside z; y and z do not mind.  The daemon has been killed since."""
    daemon = make_daemon(*SIDE_BY_SIDE).hurry("seats.record.INTERVAL_S", to=0.05).started()
    x, y, z = kinds = [Kind(daemon, tmp_path, name) for name in "xyz"]
    for other, together_us in ((y, SLOWED_US), (z, ALONE_US)):
        job = x.begins("host0")
        sampled(daemon, job)  # alone
        beside = other.begins("host0")
        x.takes(together_us)
        sampled(daemon, job)
        sampled(daemon, beside)
        x.ends(job)
        sampled(daemon, beside)  # alone
        other.ends(beside)
    # What is told to be on the disk is there after all that was to be written before.
    daemon.python("pass")
    return daemon.restarted(), kinds


def test_slowdowns_outlive_the_daemon_and_are_shown(measured: tuple[Daemon, list[Kind]]) -> None:
    daemon, (x, y, z) = measured
    one, other = y.begins("host0"), z.begins("host1")
    job = x.begins()
    made = daemon.get(f"/v1/jobs/{job}/placement")
    rows = {row["device"]: row for row in made["rows"]}
    assert rows["host0"]["slowdown_ppm"] == pytest.approx(1_800_000, rel=0.05)
    assert rows["host1"]["slowdown_ppm"] == pytest.approx(1_000_000, rel=0.05)
    assert all(row["reluctance"] is None for row in made["rows"]), "it decides nothing"
    _, header, *_ = explain_placement(msgspec.convert(made, PlacementInfo), Output())
    assert "SLOWDOWN" in header
    for kind, number in ((x, job), (y, one), (z, other)):
        kind.ends(number)
    tells_what_was_measured(daemon)


def tells_what_was_measured(daemon: Daemon) -> None:
    paces = told(daemon)
    kinds = {pace["kind"] for pace in paces}
    assert len(kinds) == 3 and {pace["beside"] for pace in paces} == {"", *kinds}
    submitted = [event["data"]["spec"]["kind"] for event in daemon.events() if event["kind"] == "Submitted"]
    assert kinds <= set(submitted)
    assert all(pace["model"] == " (concurrent)" and pace["iterations"] >= 64 for pace in paces)


def write(path: Path, *tables: list[PaceKnown], most: int = 100) -> None:
    """One table after the other, as the core has them, by one `CoreFigures`; then at most so many pairs are kept."""

    async def work() -> None:
        table = list[PaceKnown]()
        with opened(path) as daemon:
            figures = CoreFigures(daemon.journal, read_figures(daemon.connection), lambda: reversed(table), tuple)
            for table[:] in tables:
                figures.write()
            await HistoryKeeper(daemon.journal, path, [replace(PACES, most_rows=most)]).keep(wall_us())

    asyncio.run(work())


def pace(kind: str, measured_us: int, total_us: int = 9) -> PaceKnown:
    return PaceKnown("m", kind, "", total_us, 8, measured_us)


def stored(path: Path) -> list[tuple[str, int]]:
    with closing(open_journal(path)) as connection:
        return [(each.kind, each.total_us) for each in read_figures(connection)[0]]


def test_the_pairs_measured_last_are_kept(path: Path) -> None:
    now = monotonic_us()
    write(path, [pace("x", now - 9), pace("y", now - 8), pace("z", now - 7)], most=2)
    assert stored(path) == [("y", 9), ("z", 9)]
    write(path, [pace("z", now - 7), pace("y", now - 6, 10)], [pace(str(n), now - 5 + n) for n in range(5)], most=2)
    assert stored(path) == [("3", 9), ("4", 9)]


def test_a_later_figure_takes_the_place_of_an_earlier_one(path: Path) -> None:
    now = monotonic_us()
    write(path, [pace("x", now - 9)], [pace("x", now - 8, 10)], [pace("x", now - 7, 11)])
    assert sql(path, "SELECT count(*) FROM history") == [(1,)]
    assert stored(path) == [("x", 11)]


def test_time_without_a_whole_iteration_is_not_kept(path: Path) -> None:
    """The next daemon would set such a row aside as damaged, and say so for a week."""
    write(path, [PaceKnown("m", "x", "", 9, 0, monotonic_us()), pace("y", monotonic_us())])
    assert stored(path) == [("y", 9)]


def test_how_old_a_figure_is_survives_a_reboot(path: Path) -> None:
    """The core's clock begins anew then; the journal has the time of day."""
    write(path, [pace("x", monotonic_us() - FRESH_US)])
    ((measured_us,),) = sql(path, "SELECT end_us FROM history")
    assert measured_us == pytest.approx(wall_us() - FRESH_US, abs=600_000_000)


async def test_users_without_use_are_forgotten(path: Path) -> None:
    """As where an operator says that use does not count."""
    uses = [UseKnown(7, 5, monotonic_us()), UseKnown(8, 6, monotonic_us())]
    with opened(path) as daemon:
        figures = CoreFigures(daemon.journal, read_figures(daemon.connection), tuple, lambda: uses)
        figures.write()
        await daemon.journal.flushed()
        assert [(use.owner, use.used_us) for use in read_figures(daemon.connection)[1]] == [(7, 5), (8, 6)]
        del uses[:]
        figures.write()
        await daemon.journal.flushed()
        assert read_figures(daemon.connection) == ([], [])
