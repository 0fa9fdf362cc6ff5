"""``carpool simulate`` with several seeds, loads or replicas: what is asked, printed, written and refused."""

from __future__ import annotations

import doctest
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from carpool import __version__
from carpool.cli.main import main
from carpool.cli.render import progress
from carpool.cli.simulation import study_options
from carpool.sim import driver
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.report.charts import load_figure
from carpool.sim.study.figures import FigureRange, StudyRow
from carpool.sim.traces.journal_machine import JournalMachine
from tests.cli.commands.traces.test_simulate import TRACE, fresh_command, refused

__all__ = ["fresh_command"]

GENERATED = ("--generate", "poisson:jobs=30,load=0.9")
TWO = ("--policy", "fifo", "--policy", "srtf")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def answered(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """The rows, as a list."""
    assert main(["simulate", *map(str, arguments), "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    return answer if isinstance(answer, list) else [answer]


def without_speed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All but real time and the command line."""
    for row in rows:
        del row["made_with"], row["jobs_per_second_simulated"], row["ranges"]["jobs_per_second_simulated"]
        for run in row["runs"]:
            del run["jobs_per_second_simulated"]
    return list(rows)


@pytest.mark.parametrize("module", [study_options, progress])
def test_examples_are_right(module: Any) -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_one_row_per_policy_and_load_with_ranges_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *GENERATED, *TWO, "--seed", "0:3", "--load", "0.5:0.9:0.2"]) == 0
    header, *lines, about = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["POLICY", "LOAD", "MEAN"] and "JOBS/S" not in header
    named = [(policy, load) for policy in ("fifo", "srtf") for load in ("0.5", "0.7", "0.9")]
    assert [tuple(line.split()[:2]) for line in lines] == named
    assert re.search(r"  \d\w+ \(\d\w+–\d\w+\)  ", lines[0])
    assert about == "30 jobs on 1 device, whole devices; means of 3 simulations (5th to 95th percentile)"


def test_json_has_every_simulation_and_what_they_were_made_with(capsys: pytest.CaptureFixture[str]) -> None:
    fifo, srtf = answered(capsys, *GENERATED, *TWO, "--seed", "3:5", "--load", "0.5")
    assert [(row["policy"], row["load"]) for row in (fifo, srtf)] == [("fifo", 0.5), ("srtf", 0.5)]
    assert [run["seed"] for run in srtf["runs"]] == [3, 4]
    first, second = (run["avg_jct_s"] for run in srtf["runs"])
    assert srtf["avg_jct_s"] == pytest.approx((first + second) / 2)
    low, high = sorted((first, second))
    ends = {"p5": low + (high - low) * 0.05, "p95": high - (high - low) * 0.05}
    assert srtf["ranges"]["avg_jct_s"] == pytest.approx(ends)
    (alone,) = answered(capsys, "--generate", "poisson:jobs=30,load=0.5", "--policy", "srtf", "--seed", "4")
    assert alone["avg_jct_s"] == second and "ranges" not in alone
    command = "carpool simulate --generate poisson:jobs=30,load=0.9 --policy fifo --policy srtf --seed 3:5 --load 0.5"
    given = {"generator": "poisson:jobs=30,load=0.9", "seeds": "3:5", "loads": [0.5]}
    assert srtf["made_with"] == {"carpool": __version__, "command": f"{command} --json", **given}


def test_the_number_of_processes_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    study = (*GENERATED, *TWO, "--seed", "0:3", "--load", "0.5:1.0:0.5")
    one, two, all_cores = (without_speed(answered(capsys, *study, *more)) for more in ((), ("-j", "2"), ("-j",)))
    assert one == two == all_cores


def test_lists_and_reports_do_not_depend_on_processes(trace: Path, tmp_path: Path) -> None:
    written = []
    for name, more in (("one", ()), ("two", ("-j2",))):
        (tmp_path / name).mkdir()
        lists = ("--jobs-csv", str(tmp_path / name / "jobs.csv"), "--report", str(tmp_path / name / "report.html"))
        assert main(["simulate", str(trace), "--devices", "2", *TWO, *lists, *more]) == 0
        pages = [path.read_text().partition("<h2>Made with")[0] for path in sorted((tmp_path / name).iterdir())]
        written.append(pages)
    assert written[0] == written[1] and len(written[0]) == 3


def test_a_load_speeds_up_recorded_arrivals(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    slow, _, fast = answered(capsys, trace, "--devices", "2", "--policy", "fifo", "--load", "0.5:1.5:0.5")
    assert (slow["load"], fast["load"]) == (0.5, 1.5)
    assert slow["makespan_s"] == 15 and slow["avg_queueing_s"] < fast["avg_queueing_s"]
    assert slow["runs"][0]["seed"] is None


def test_a_load_is_that_of_all_devices_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    (eight,) = answered(capsys, *GENERATED, "--load", "0.7", "--hosts", "4x2", "--policy", "fifo")
    named = ("--generate", "poisson:jobs=30,load=0.7,devices=8", "--devices", "8", "--policy", "fifo")
    assert eight["makespan_s"] == answered(capsys, *named)[0]["makespan_s"]
    assert eight["devices"] == 8


def failing(seeds: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations with these seeds fail; they are told by their first job."""
    from carpool.sim.generators import generate

    wrong = {generate(GENERATED[1], seed)[1].submit_us for seed in seeds}
    real = driver.simulate

    def simulate(jobs: Sequence[TraceJob], options: Options, progress: Any = None) -> Any:
        if jobs[1].submit_us in wrong:
            raise ValueError("a job would never end")
        return real(jobs, options, progress)

    monkeypatch.setattr(driver, "simulate", simulate)


@pytest.mark.parametrize("processes", [(), ("-j", "2")])
def test_a_failure_names_its_combination_and_loses_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, processes: tuple[str, ...]
) -> None:
    failing({1}, monkeypatch)
    assert main(["simulate", *GENERATED, "--policy", "fifo", "--seed", "0:3", "--json", *processes]) == 1
    captured = capsys.readouterr()
    row, error = json.loads(captured.out), json.loads(captured.err)["error"]
    assert [run["seed"] for run in row["runs"]] == [0, 2]
    assert row["failures"] == [{"seed": 1, "error": "a job would never end"}]
    assert error["message"] == "1 of 3 simulations failed\npolicy fifo, seed 1: a job would never end"


def test_rows_of_which_all_failed_are_left_out_of_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing({0, 1}, monkeypatch)
    assert main(["simulate", *GENERATED, *TWO, "--seed", "0:2"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and "4 of 4 simulations failed" in captured.err


def test_replicas_have_ranges_around_the_jobs_as_they_are(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    common = (trace, "--devices", "2", "--policy", "fifo")
    (alone,), (row,), (again,) = (
        answered(capsys, *common, *more) for more in ((), *[("--replicas", "9", "--spread", "10%")] * 2)
    )
    ends = row["ranges"]["makespan_s"]
    assert ends["p5"] < alone["makespan_s"] < ends["p95"]
    assert [run["seed"] for run in row["runs"]] == [*range(9)] and row["made_with"]["replicas"] == 9
    assert without_speed([row]) == without_speed([again])


def test_a_journals_replicas_have_its_own_spread(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = [
        TraceJob(str(n), 0, startup + 100 * pace, iterations=100, iteration_us=pace, model="train")
        for n, (startup, pace) in enumerate([(2_000_000, 10_000), (3_000_000, 11_000), (4_000_000, 12_000)])
    ]
    monkeypatch.setattr("carpool.sim.traces.read_journal", lambda path, since: (jobs, []))
    monkeypatch.setattr("carpool.sim.traces.read_engines", lambda path, since: [])
    monkeypatch.setattr("carpool.sim.traces.read_machine", lambda path, since: JournalMachine())
    assert main(["simulate", "--from-journal", str(tmp_path), "--policy", "fifo", "--replicas", "9"]) == 0
    captured = capsys.readouterr()
    assert "measured spreads, medians of the jobs: start-ups 33.3%, paces 9.1%\n" in captured.err
    assert "means of 9 simulations" in captured.out
    (row,) = answered(capsys, "--from-journal", tmp_path, "--policy", "fifo", "--replicas", "2", "--spread", "0.01")
    digest = hashlib.sha256("".join(f"{job!r}\n" for job in jobs).encode()).hexdigest()
    assert row["made_with"]["journal"] == {"file": str(tmp_path), "sha256": digest}


def test_what_a_trace_was_is_in_json_and_report(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    (row,) = answered(capsys, trace, "--policy", "fifo", "--report", report)
    digest = hashlib.sha256(trace.read_bytes()).hexdigest()
    assert row["made_with"]["trace"] == {"file": "trace.csv", "sha256": digest}
    page = report.read_text()
    assert f"<td>trace.csv, SHA-256 {digest}</td>" in page and "<th>command</th><td>carpool simulate" in page


def test_a_report_of_a_study_has_bands_over_load(trace: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert main(["simulate", *GENERATED, *TWO, "--seed", "0:3", "--load", "0.5:0.9:0.2", "--report", str(report)]) == 0
    page = report.read_text()
    assert "<th>fifo, load 0.7</th>" in page and '<div id="load"' in page and 'id="policy-0"' not in page
    assert re.search(r"<th>mean JCT \(s\)</th><td>[\d,.]+ \([\d,.]+–[\d,.]+\)</td>", page)


def made_row(policy: str, load: float | None, mean: float) -> StudyRow:
    row = StudyRow(policy, load, [])
    row.__dict__["figures"] = {"avg_jct_s": FigureRange(mean, mean - 1, mean + 2)}
    return row


def test_the_chart_of_a_study() -> None:
    loads = load_figure([made_row(policy, load, 10 * load) for policy in ("a", "<b>") for load in (0.5, 1.0)])
    high, low, mean = loads.data[3:]
    assert (list(mean.x), list(mean.y)) == ([0.5, 1.0], [5.0, 10.0])
    assert (list(high.y), list(low.y)) == ([7.0, 12.0], [4.0, 9.0])
    assert (mean.name, low.fill, loads.layout.yaxis.title.text) == ("&lt;b&gt;", "tonexty", "mean JCT (s)")
    (bar,) = load_figure([made_row("a", None, 10)]).data
    assert (list(bar.y), list(bar.error_y.array), list(bar.error_y.arrayminus)) == ([10.0], [2.0], [1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*GENERATED, "--seed", "5:5"], "'5:5' has no seed: TO is not included"),
        ([*GENERATED, "--seed", "-1"], "must be 0 or more"),
        ([*GENERATED, "--seed", "1:2:3"], "'2:3' is not a whole number"),
        ([*GENERATED, "--load", "0.5:1.0"], "is neither a load, as in 0.9, nor FROM:TO:STEP"),
        ([*GENERATED, "--load", "0"], "0 is not above 0"),
        ([*GENERATED, "--load", "1:0.5:0.1"], "has 0 loads"),
        ([*GENERATED, "--load", "much"], "'much' is not a number"),
        (["--generate", "salus", "--load", "0.5"], "--generate: salus has no load; bursty and poisson have"),
        (["--generate", "poisson:mean_interarrival_s=5", "--load", "0.5"], "give one of them"),
        (["--load", "0.5"], "Give one source of jobs"),
        (["--services", "TRACE", "--load", "0.5"], "--load is for jobs"),
        (["--services", "TRACE", "--replicas", "3", "--spread", "5%"], "--replicas is for jobs"),
        (["TRACE", "--replicas", "3"], "--replicas needs --spread, as in 10%"),
        (["TRACE", "--spread", "3%"], "--spread is for --replicas"),
        (["TRACE", "--replicas", "3", "--spread", "much"], "is not a share"),
        ([*GENERATED, "--replicas", "3", "--spread", "5%", "--seed", "0:2"], "both repeat; give one of them"),
        (["TRACE", "-j", "0"], "must be 1 or more"),
        (["-j", "TRACE"], "is not a whole number; write -j N, or -j at the end"),
        (["TRACE", "--hosts", "50"], "'50' is not HOSTSxDEVICES, as in 50x8"),
        (["TRACE", "--hosts", "2x4", "--devices", "8"], "give one of them"),
        ([*GENERATED, "--seed", "0:2", "--jobs-csv", "x"], "--jobs-csv: of one simulation per policy"),
        (["TRACE", "--replicas", "2", "--spread", "1%", "--runs-csv", "x"], "--runs-csv: of one simulation per policy"),
        ([*GENERATED, "--load", "0.5:1:0.5", "--save-trace", "x"], "--save-trace is for the jobs of one"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], trace: Path, arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, *(trace if part == "TRACE" else part for part in arguments))
