"""The machine in ``carpool simulate``: its cores by hand or calibrated, and the costs of a journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.cli.main import main
from carpool.protocol.paths import Home
from carpool.sim.calibration import calibration
from carpool.sim.traces import read_trace
from tests.sim.traces.test_foreign import make_journal

#: 6 s of start-up and 3 s of computing.
TRACE = """job_id,submit_s,iterations,iteration_ms,duration_s
a,0,30,100,9
b,0,30,100,9
c,0,30,100,9
"""
TWO = calibration("2026-12-01T09:30:00Z", "Xeon", ((1, 1_000_000), (2, 1_800_000)))
LANES = ["--lanes", "--devices", "3", "--policy", "fifo", "--resolution", "0"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Three jobs that computed for 3 s each on host devices, and moved memory at 3 and 2 GB/s."""
    moves = {"out_bytes": 6000, "out_us": 2, "in_bytes": 2000, "in_us": 1}
    job = {"submitted_us": 1, "ended_us": 3_000_001, "device_us": 3_000_000, "device": "host0", "iterations": 30}
    job["spec"] = '{"argv": [], "name": ""}'
    make_journal(tmp_path, [{**job, **moves}, {**job, "residue_bytes": 12_000, "switches": 5}, job])
    return tmp_path


def calibrate(home: Path) -> None:
    Home(home).calibration.write_bytes(msgspec.json.encode(TWO))


def figures(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert main(["simulate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("options", "makespan"),
    [
        ([], 9),
        (["--cores", "none"], 9),
        (["--cores", "3"], 9),
        (["--cores", "2:1.8"], 13),  # 6 s at 0.6, then 3
        (["--cores", "2:1.8", "--host-devices"], 15),  # 9 s at 0.6
        (["--cores", "1"], 21),
    ],
)
def test_the_cores_by_hand(capsys: pytest.CaptureFixture[str], trace: Path, options: list[str], makespan: int) -> None:
    assert figures(capsys, trace, *LANES, *options)["makespan_s"] == pytest.approx(makespan, rel=1e-5)


def test_each_of_several_machines_has_its_cores(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    common = ["--lanes", "--policy", "fifo", "--resolution", "0", "--cores", "1"]
    assert figures(capsys, trace, *common, "--hosts", "3x1")["makespan_s"] == 9
    assert figures(capsys, trace, *common, "--hosts", "1x3")["makespan_s"] == pytest.approx(21, rel=1e-5)


def test_what_is_said_of_the_machine(capsys: pytest.CaptureFixture[str], trace: Path, journal: Path) -> None:
    calibrate(journal)
    assert figures(capsys, trace, *LANES)["host"] is None
    by_hand = figures(capsys, trace, *LANES, "--cores", "2:1.8")["host"]
    assert by_hand == {"cores": 2, "speeds": {"1": 1.0, "2": 1.8}, "measured": ""}
    measured = figures(capsys, "--from-journal", journal)["host"]
    assert measured == {"cores": 2, "speeds": {"1": 1.0, "2": 1.8}, "measured": "2026-12-01"}
    for options, said in ((["--cores", "2"], "host: 2 cores"), (["--cores", "1"], "host: 1 core")):
        assert main(["simulate", str(trace), *LANES, *options]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == said
    assert main(["simulate", "--from-journal", str(journal / "journal.sqlite")]) == 0
    assert "host: 2 cores as calibrated on 2026-12-01" in capsys.readouterr().out


def test_jobs_of_a_journal_compute_on_the_calibrated_cores_if_their_devices_were_host_devices(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    arguments = ["--from-journal", journal, *LANES[1:]]
    calibrate(journal)
    assert figures(capsys, *arguments)["makespan_s"] == 5
    assert figures(capsys, *arguments, "--cores", "none")["makespan_s"] == 3
    assert figures(capsys, *arguments, "--cores", "calibrated")["makespan_s"] == 5


def test_without_a_calibration_the_cores_of_this_machine_are_taken(
    capsys: pytest.CaptureFixture[str], journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores, makespan in (({0, 3}, 4.5), ({0, 1, 3}, 3)):  # three seconds of three jobs
        monkeypatch.setattr("os.sched_getaffinity", lambda process, cores=cores: cores)
        found = figures(capsys, "--from-journal", journal, *LANES[1:])
        assert (found["makespan_s"], found["host"]["cores"]) == (pytest.approx(makespan, rel=1e-5), len(cores))
    assert main(["simulate", "--from-journal", str(journal)]) == 0
    said = capsys.readouterr()
    assert "host: 3 cores of this machine" in said.err and "`carpool calibrate`" in said.err
    assert main(["simulate", "--from-journal", str(journal), "--cores", "none"]) == 0
    assert "cores of this machine" not in capsys.readouterr().err


def test_a_trace_may_be_simulated_on_the_cores_of_a_daemons_machine(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path
) -> None:
    calibrate(tmp_path)
    found = figures(capsys, trace, *LANES, "--cores", "calibrated", "--home", tmp_path)
    assert (found["makespan_s"], found["host"]["measured"]) == (13, "2026-12-01")


def test_moves_and_switches_cost_what_they_did(
    capsys: pytest.CaptureFixture[str], journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 3 and 2 GB/s; 12 KB of residue took 4 and 6 us."""
    from carpool.sim import driver

    asked, said = [], []
    real = driver.simulate

    def spy(jobs: Any, options: Any, progress: Any = None) -> Any:
        asked.append((jobs, options))
        return real(jobs, options, progress)

    monkeypatch.setattr(driver, "simulate", spy)
    for options in ([], ["--switch-cost", "7ms", "--copy-rate", "9GB"]):
        saved = ["--save-trace", str(tmp_path / "saved.csv")]
        assert main(["simulate", "--from-journal", str(journal), *options, *saved]) == 0
        said.append(capsys.readouterr().err)
    (jobs, recorded), (_, explicit) = asked
    assert "memory moves at 2.8 GiB/s out and 1.9 GiB/s back, as it did (--copy-rate)\n" in said[0]
    assert "a switch costs 0.01 ms, the median of the journal (--switch-cost)\n" in said[0]
    assert "as it did" not in said[1] and "a switch costs" not in said[1]
    assert (recorded.offload_bytes_per_us, recorded.restore_bytes_per_us) == (3000, 2000)
    assert [recorded.switch_us(job) for job in jobs] == [10, 10, 10]
    assert (explicit.offload_bytes_per_us, explicit.restore_bytes_per_us) == (9000, 9000)
    assert [explicit.switch_us(job) for job in jobs] == [7000, 7000, 7000]
    assert read_trace(tmp_path / "saved.csv") == jobs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cores", "two"], "begins with no number of cores; write as in 4 or 2:1.8"),
        (["--cores", "2:3"], "S(2) is 3; it must be at most 2"),
        (["--host-devices"], "no cores are modelled; give --cores, or run `carpool calibrate`"),
        (["--cores", "none", "--host-devices"], "no cores are modelled"),
        (["--cores", "2", "--host-devices", "--interference", "5%"], "leave --slowdown and --interference out"),
        (["--cores", "2", "--host-devices", "--slowdown", "timeslice"], "or add --cores none"),
    ],
)
def test_what_makes_no_sense(capsys: pytest.CaptureFixture[str], trace: Path, options: list[str], message: str) -> None:
    assert main(["simulate", str(trace), *LANES, *options]) == 2
    assert message in capsys.readouterr().err


def test_whole_devices_have_no_cores(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    assert main(["simulate", str(trace), "--policy", "fifo", "--cores", "2"]) == 2
    assert "jobs share the cores of a machine in lanes only; add --lanes" in capsys.readouterr().err


def test_jobs_of_a_journal_on_host_devices_have_one_model_only(
    capsys: pytest.CaptureFixture[str], journal: Path
) -> None:
    arguments = ["simulate", "--from-journal", str(journal), "--interference", "5%"]
    assert main(arguments) == 0
    calibrate(journal)
    assert main(arguments) == 2
    assert "jobs on host devices are slowed by the cores of the machine" in capsys.readouterr().err


def test_a_calibration_that_is_damaged_or_missing(
    capsys: pytest.CaptureFixture[str], journal: Path, trace: Path, tmp_path: Path
) -> None:
    wanted = ["simulate", str(trace), *LANES, "--cores", "calibrated", "--home", str(tmp_path)]
    assert main(wanted) == 4
    assert "has no calibration\n  run `carpool calibrate`" in capsys.readouterr().err
    Home(journal).calibration.write_text("{}")
    for arguments in (wanted, ["simulate", "--from-journal", str(journal)]):
        assert main(arguments) == 1
        said = capsys.readouterr().err
        assert "calibration.json is not what `carpool calibrate` writes" in said and "--cores" in said
