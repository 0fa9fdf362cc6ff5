"""What a journal says about its machine: rates of moves, what switches cost, and who computed on its cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from carpool.core import events
from carpool.core.model import MIB, Cause, Usage
from carpool.sim.driver import simulate
from carpool.sim.model.options import COPY_BYTES_PER_US, Options
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.traces import TraceError, read_journal, read_machine
from carpool.sim.traces.journal_machine import JournalMachine
from tests.sim.traces.test_foreign import make_journal
from tests.sim.traces.test_journal_engines import Happened, journal


def moved(out: tuple[int, int] = (0, 0), back: tuple[int, int] = (0, 0), **more: Any) -> dict[str, Any]:
    """A job that has moved so many bytes in so many microseconds."""
    moves = {"out_bytes": out[0], "out_us": out[1], "in_bytes": back[0], "in_us": back[1]}
    return {"submitted_us": 1, "device_us": 1000, "device": "cuda0", **moves, **more}


def released(job: int, cost_us: int) -> Happened:
    return [(job, events.TurnReleased(job, Cause.BOUNDARY, Usage(switch_cost_us=cost_us)))]


def test_rates_are_medians_of_the_jobs_that_moved(tmp_path: Path) -> None:
    rows = [moved((6000, 2), (500, 1)), moved((1000, 1)), moved((9000, 1)), moved(), moved((0, 5), (7, 0))]
    found = read_machine(make_journal(tmp_path, rows))
    assert (found.offload, found.restore) == (3000, 500)


def test_without_moves_no_rate_is_known(tmp_path: Path) -> None:
    assert read_machine(make_journal(tmp_path, [moved(), moved()])) == JournalMachine(on_gpus=True)


def test_a_rate_is_never_none_at_all(tmp_path: Path) -> None:
    """A rate of 0 would mean that moves take no time."""
    assert read_machine(make_journal(tmp_path, [moved((1, 1000))])).offload == 1


def test_switches_cost_what_was_measured_or_what_the_residue_takes(tmp_path: Path) -> None:
    """1: as its last turn says.  2: 6 KB out at 3 and back at 2 bytes per us.  3: had one turn, so the median."""
    rows = [
        moved(switches=9, residue_bytes=70),
        moved((3000, 1000), (4000, 2000), switches=2, residue_bytes=6000),
        moved(switches=1),
    ]
    path = journal(tmp_path, rows, [*released(1, 800), *released(1, 700), *released(3, 5)])
    jobs, _ = read_journal(path)
    assert [job.switch_us for job in jobs] == [700, 5000, 2850]


def test_a_residue_is_moved_at_the_simulators_rate_where_nothing_was_measured(tmp_path: Path) -> None:
    path = make_journal(tmp_path, [moved(switches=3, residue_bytes=60 * MIB)])
    (job,), _ = read_journal(path)
    assert job.switch_us == 2 * -(-60 * MIB // COPY_BYTES_PER_US)


def test_a_journal_without_switches_has_no_cost(tmp_path: Path) -> None:
    (job,), _ = read_journal(make_journal(tmp_path, [moved(switches=1)]))
    assert job.switch_us == 0


def test_jobs_on_host_devices_compute_on_cores(tmp_path: Path) -> None:
    two = '{"argv": [], "gpus": 2}'
    rows = [moved(device="host0"), moved(device="cuda0"), moved(device="host12", spec=two), moved(device=None)]
    path = make_journal(tmp_path, rows)
    jobs, _ = read_journal(path)
    assert [job.cores_ppm for job in jobs] == [1_000_000, 0, 2_000_000, 0]
    assert read_machine(path).on_gpus
    assert not read_machine(path, since_us=2).on_cores


def test_only_jobs_since_a_time_count(tmp_path: Path) -> None:
    rows = [moved((9000, 1), submitted_us=1), moved((3000, 1), submitted_us=5)]
    assert read_machine(make_journal(tmp_path, rows), since_us=5).offload == 3000


def test_the_cost_of_a_job_is_used_unless_an_option_says_another() -> None:
    job = TraceJob("a", 0, 1, switch_us=70)
    assert Options().switch_us(job) == 70
    assert Options(switch_cost_us=0).switch_us(job) == 0


def test_a_database_that_is_none_of_a_daemon(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_text("text")
    with pytest.raises(TraceError, match="not a journal of Carpool"):
        read_machine(tmp_path)


def test_turns_cost_as_much_as_in_the_journal(tmp_path: Path) -> None:
    """Two jobs of 1 s in one lane, in turns of 50 ms: each turn that one comes back to costs 5 ms."""
    rows = [moved(switches=9, device_us=1_000_000, iterations=100) for _ in range(2)]
    path = journal(tmp_path, rows, [*released(1, 5000), *released(2, 5000)])
    jobs, _ = read_journal(path)
    costly, free = simulate(jobs, Options()), simulate(jobs, Options(switch_cost_us=0))
    turns = [round((one.service_us - 1_000_000) / 5000) for one in costly.jobs]
    assert max(one.ended_us for one in free.jobs) == 2_000_000
    assert max(one.ended_us for one in costly.jobs) == 2_000_000 + 5000 * sum(turns)
    assert sum(turns) > 5
