"""``carpool simulate``: what its options say to the simulator, what it prints and writes, and what it refuses."""

from __future__ import annotations

import copy
import csv
import json
import os
import pty
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base.presets import PRESETS
from carpool.cli.commands.traces import simulate
from carpool.cli.main import main
from carpool.cli.render.progress import Progress
from carpool.cli.simulation import run, source
from carpool.cli.simulation.options import MOST_LIMITS
from carpool.cli.simulation.outputs import writing
from carpool.core.model import GIB, Allocation, Oversubscribe
from carpool.core.policies.own import LIMITS
from carpool.protocol.missing_package import extra_hint
from carpool.sim import driver, replay
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.replay import Difference, JournalRow, Replay
from carpool.sim.traces import FORMATS as KNOWN_FORMATS
from carpool.sim.traces import read_trace, read_trace_with_notes
from carpool.sim.traces.journal_machine import JournalMachine
from tests.cli.conftest import Cli, heed_the_terminal
from tests.cli.test_cold_start import loaded

TRACE = "job_id,submit_s,gpus,duration_s\nlong,0,1,10\nwide,1,2,4\nshort,2,1,1\n"
#: One of two weights at a time fits beside what an iteration needs.
CROWDED = """job_id,submit_s,iterations,iteration_ms,persistent_mib,ephemeral_mib
a,0,38,50,600,300
b,0,38,50,600,300
"""
BELIEVED = """job_id,submit_s,duration_s,persistent_mib,utilization,estimate_low_mib
a,0,300,6000,0.5,2000
b,1,300,6000,0.5,2000
c,100,300,6000,0.5,
"""
FIGURES = {
    *("avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s"),
    *("avg_queueing_s", "preemptions", "utilization", "jobs_per_second_simulated"),
}
POLICY = """
from carpool.core.policies import BasePolicy

class Widest(BasePolicy):
    name = "widest"

    def admission_key(self, view, job):
        return (-job.gang,)
"""


@pytest.fixture(autouse=True)
def fresh_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command remembers how its help is asked for where it was first called: not beyond these tests."""
    monkeypatch.setattr(simulate, "command", copy.copy(simulate.command))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def believed(tmp_path: Path) -> Path:
    path = tmp_path / "believed.csv"
    path.write_text(BELIEVED)
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """What the simulator is asked for, one entry per run."""
    calls: list[Options] = []
    real = driver.simulate

    def spy(jobs: list[TraceJob], options: Options, progress: Callable[[int], None] | None = None) -> Any:
        calls.append(options)
        return real(jobs, options, progress)

    monkeypatch.setattr(driver, "simulate", spy)
    return calls


Asks = Callable[..., list[Options]]


@pytest.fixture
def asks(asked: list[Options], trace: Path) -> Asks:
    """Simulates the trace with these options on two devices, and says what the simulator was asked for."""

    def run(*options: str) -> list[Options]:
        assert main(["simulate", str(trace), "--devices", "2", *options]) == 0
        return [asked.pop(0) for _ in list(asked)]

    return run


def figures_of(carpool: Cli, *arguments: object, cwd: Path | None = None) -> Any:
    return json.loads(carpool.ok("simulate", *map(str, arguments), "--json", cwd=cwd))


def rows(path: Path, *columns: str) -> list[tuple[str, ...]]:
    with path.open(newline="") as file:
        return [tuple(row[column] for column in columns) for row in csv.DictReader(file)]


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command line that is wrong is told."""
    assert main(["simulate", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


# What the options mean


def test_defaults(asks: Asks) -> None:
    (options,) = asks()
    assert options.resolution_us > 0  # chosen so that it takes seconds
    usual = Options(
        devices=2, resolution_us=options.resolution_us, interference=options.interference, telemetry_us=1_000_000
    )
    assert options == usual
    assert options.interference.name == "concurrent"
    assert (options.settings.policy, options.settings.allocation) == ("fair", Allocation.LANES)


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "srsf", "las"])
def test_most_policies_have_whole_devices(asks: Asks, policy: str) -> None:
    assert asks("--policy", policy)[0].settings.allocation is Allocation.DEVICES


@pytest.mark.parametrize("policies", [("srtf", "fair"), ("tq", "las"), ("fifo", "pack", "sjf")])
def test_a_table_never_mixes_whole_devices_with_shared_ones(
    asks: Asks, policies: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = asks(*(word for policy in policies for word in ("--policy", policy)))
    assert [options.settings.allocation for options in asked] == [Allocation.LANES] * len(policies)
    assert "3 jobs on 2 devices, shared in lanes" in capsys.readouterr().out


@pytest.mark.parametrize("policies", [(), ("srtf",), ("srtf", "fair")])
def test_the_jobs_of_a_journal_share_devices_as_they_did(
    asked: list[Options], trace: Path, monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...]
) -> None:
    monkeypatch.setattr("carpool.sim.traces.read_journal", lambda path, since: read_trace_with_notes(trace, "csv"))
    monkeypatch.setattr("carpool.sim.traces.read_engines", lambda path, since: [])
    monkeypatch.setattr("carpool.sim.traces.read_machine", lambda path, since: JournalMachine())
    named = [word for policy in policies for word in ("--policy", policy)]
    assert main(["simulate", "--from-journal", "--devices", "2", *named]) == 0
    assert {options.settings.allocation for options in asked} == {Allocation.LANES}


def test_lanes_are_a_choice(asks: Asks) -> None:
    arguments = ["--policy", "srtf", "--lanes", "--device-memory", "2GiB", "--slowdown", "timeslice"]
    (options,) = asks(*arguments, "--quantum", "10ms", "--resolution", "1s")
    assert options.settings.allocation is Allocation.LANES
    assert options.device_memory == 2 * GIB
    assert options.interference.name == "timeslice"
    assert options.settings.quantum_us == 10_000
    assert options.resolution_us == 1_000_000


def test_oversubscription(asks: Asks) -> None:
    (live,) = asks("--policy", "tq")
    (always,) = asks("--lanes", "--oversubscribe", "on", "--store", "2GiB", "--copy-rate", "25GB")
    (never,) = asks("--oversubscribe", "off", "--copy-rate", "0")
    assert (live.oversubscribe, live.settings.host_store, live.settings.quantum_us) == (Oversubscribe.AUTO, None, None)
    assert live.settings.allocation is Allocation.LANES, "a quantum is of a turn"
    assert (always.oversubscribe, always.settings.host_store) == (Oversubscribe.ON, 2 * GIB)
    assert (always.offload_bytes_per_us, always.restore_bytes_per_us) == (25_000, 25_000)
    assert (never.oversubscribe, never.offload_bytes_per_us) == (Oversubscribe.OFF, 0)


def test_las(asks: Asks) -> None:
    las, fifo = asks("--policy", "las", "--policy", "fifo", "--las-limits", "3250,2h", "--las-unit", "gpu")
    assert las.settings.extra == {
        "las_limit_1_us": 3_250_000_000,
        "las_limit_2_us": 7_200_000_000,
        "las_by_devices": 1,
    }
    assert fifo.settings.extra == {}


def test_the_rest_of_the_options(asks: Asks) -> None:
    (options,) = asks(
        *("--policy", "fifo", "--backfill", "--switch-cost", "250ms", "--retries", "3", "--set", "grace_us=7ms"),
        *("--undeclared", "duration", "--undeclared", "memory"),
    )
    assert (options.settings.backfill, options.settings.grace_us) == (1, 7_000)
    assert (options.switch_cost_us, options.retries) == (250_000, 3)
    assert (options.declare_duration, options.declare_memory, options.record) == (False, False, False)


def test_the_formats_and_limits_are_those_that_there_are() -> None:
    assert simulate.FORMATS == KNOWN_FORMATS
    assert len(LIMITS) == MOST_LIMITS


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give one source of jobs"),
        (["TRACE", "--generate", "poisson"], "Give one source of jobs"),
        (["--generate", "nonsense"], "nonsense"),
        (["--generate", "poisson:jobs=none"], "whole number"),
        (["TRACE", "--seed", "3"], "--seed is for --generate"),
        (["--generate", "poisson", "--format", "csv"], "--format is for a TRACE file"),
        (["TRACE", "--verify"], "--verify is for --from-journal"),
        (["TRACE", "--policy", "nonsense"], "unknown policy 'nonsense'"),
        (["TRACE", "--policy", "fifo", "--policy", "fifo"], "name each once"),
        (["TRACE", "--las-limits", "5,7"], "add --policy las"),
        (["TRACE", "--las-unit", "gpu", "--policy", "fifo"], "add --policy las"),
        (["TRACE", "--policy", "las", "--las-limits", "7,5"], "larger than the one before it"),
        (["TRACE", "--policy", "las", "--las-limits", "1,2,3,4,5,6,7,8,9,10"], "there are 10 limits"),
        (["TRACE", "--policy", "las", "--las-limits", "soon"], "is not a time"),
        (
            ["TRACE", "--set", "quantm_us=5s"],
            "unknown setting 'quantm_us'; did you mean 'quantum_us'? known settings: backfill",
        ),
        (["TRACE", "--set", "grace_us=none"], "grace_us needs a number"),
        (["TRACE", "--set", "growth_step=0"], "growth_step is 0; it must be at least 1"),
        (["TRACE", "--slowdown", "nonsense"], "use concurrent, timeslice"),
        (["TRACE", "--device-memory", "0"], "device_memory is 0"),
        (["TRACE", "--copy-rate", "5B"], "--copy-rate is 5 bytes per second; it must be 0 or at least 1MB"),
        (["TRACE", "--oversubscribe", "maybe"], "'maybe' is not one of 'off', 'auto', 'on'"),
        (["TRACE", "--devices", "0"], "must be 1 or more"),
        (["TRACE", "--report", "x.html", "--jobs-csv", "x.html"], "Two outputs have the same file"),
        (["TRACE", "--runs-csv", "x", "--jobs-csv", "x"], "Two outputs have the same file"),
        (["TRACE", "--since", "24h"], "--since is for --from-journal without --verify."),
        (["TRACE", "--save-trace", "TRACE"], "would overwrite the TRACE file"),
        (["no-such-file.csv"], "does not exist"),
        (["TRACE", "--policy", "srtf", "--no-backfill"], "--backfill has no effect for srtf"),
        (
            ["TRACE", "--policy", "fifo", "--backfill", "--set", "backfill=0"],
            "--backfill and --set backfill say the same",
        ),
        (
            ["TRACE", "--policy", "srtf", "--oversubscribe", "off"],
            "--oversubscribe: memory is moved in lanes only; add --lanes",
        ),
        (
            ["TRACE", "--policy", "fifo", "--store", "1GiB", "--copy-rate", "0"],
            "--store, --copy-rate: memory is moved in lanes",
        ),
        (["TRACE", "--store", "1GiB", "--set", "host_store=2GiB"], "--store and --set host_store say the same thing"),
        (["TRACE", "--quantum", "1s", "--set", "quantum_us=5s"], "--quantum and --set quantum_us say the same thing"),
        (["BELIEVED", "--placement", "nonsense"], "unknown placement policy 'nonsense'"),
        (["BELIEVED", "--preset", "nonsense"], "unknown preset 'nonsense'"),
        (["BELIEVED", "--estimator", "nonsense"], "use none, oracle or column:NAME"),
        (["BELIEVED", "--estimator", "column:"], "names no column"),
        (["BELIEVED", "--estimator", "column:other"], "no job has an estimate_other_mib"),
        (["BELIEVED", "--estimator", "none", "--undeclared", "memory"], "give one of them"),
        (["BELIEVED", "--interference", "2"], "is not between 0 and 1"),
        (["BELIEVED", "--interference", "some"], "is not a share"),
        (["BELIEVED", "--interference", "5%", "--slowdown", "timeslice"], "timeslice has no loss by interference"),
        (["BELIEVED", "--memory-at-first", "0", "--memory-warmup", "1s"], "warmup_share_ppm is 0"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], trace: Path, believed: Path, arguments: list[str], message: str
) -> None:
    files = {"TRACE": trace, "BELIEVED": believed}
    assert message in refused(capsys, *(files.get(part, part) for part in arguments))


def test_a_malformed_trace_is_said_with_its_line(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    trace.write_text(TRACE + "bad,3,1,soon\n")
    assert main(["simulate", str(trace)]) == 1
    assert "line 5" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--jobs-csv", "--runs-csv", "--save-trace"])
def test_outputs_are_tried_before_anything_is_simulated(
    asked: list[Options], capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path, option: str
) -> None:
    assert main(["simulate", str(trace), option, str(tmp_path / "missing" / "out")]) == 1
    assert "missing/out cannot be written: No such file or directory" in capsys.readouterr().err
    assert asked == []


def test_a_report_without_what_draws_charts_names_the_extra(
    asked: list[Options], capsys: pytest.CaptureFixture[str], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["simulate", str(trace), "--report", str(trace.with_suffix(".html"))]) == 1
    assert extra_hint("report") in capsys.readouterr().err
    assert asked == [] and not trace.with_suffix(".html").exists()


def test_trying_an_output_leaves_nothing_behind(trace: Path, tmp_path: Path) -> None:
    kept, new = tmp_path / "kept.csv", tmp_path / "new.html"
    kept.write_text("precious")
    trace.write_text("nonsense")
    assert main(["simulate", str(trace), "--jobs-csv", str(kept), "--report", str(new)]) == 1
    assert kept.read_text() == "precious"
    assert not new.exists()


def test_what_the_simulator_cannot_do_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("job wide would never end")

    monkeypatch.setattr(driver, "simulate", fail)
    assert main(["simulate", str(trace), "--policy", "fifo", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["message"] == "job wide would never end"


# A journal


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (Replay(lives=2, events=7, commands=1), 0, "the same decisions: 7 events, 1 command, 2 starts of the daemon"),
        (Replay(lives=1, incomplete=1), 0, "; events of 1 start of the daemon are missing"),
        (Replay(lives=1, difference=Difference(JournalRow(5, 9, "Tick", "{}"), ("X",), ())), 1, "differs after Tick"),
        (Replay(incomplete=3), 1, "nothing can be verified: events of 3 starts of the daemon are missing"),
    ],
)
def test_verifying(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: Replay, code: int, said: str
) -> None:
    monkeypatch.setattr(replay, "replay_journal", lambda path: found)
    assert main(["simulate", "--from-journal", "x", "--verify"]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


# From the shell


def test_the_figures_of_a_small_trace(carpool: Cli, trace: Path) -> None:
    """fifo: long has [0, 10) of one device; wide needs both and has [10, 14); short waits behind it until 14."""
    figures = figures_of(carpool, trace, "--devices", "2", "--policy", "fifo")
    assert set(figures) >= FIGURES
    assert figures["avg_jct_s"] == pytest.approx((10 + 13 + 13) / 3)
    assert figures["makespan_s"] == 15
    assert figures["utilization"] == pytest.approx((10 + 8 + 1) / 30)
    assert (figures["jobs"], figures["preemptions"], figures["refused"]) == (3, 0, 0)


def test_several_policies_side_by_side(carpool: Cli, trace: Path, tmp_path: Path) -> None:
    arguments = ["simulate", str(trace), "--devices", "2", "--policy", "fifo", "--policy", "srtf"]
    header, *lines, about = carpool.ok(*arguments, "--jobs-csv", str(tmp_path / "jobs.csv")).splitlines()
    assert header.split()[:3] == ["POLICY", "MEAN", "JCT"]
    assert [line.split()[0] for line in lines] == ["fifo", "srtf"]
    assert about == "3 jobs on 2 devices, whole devices"
    assert rows(tmp_path / "jobs-srtf.csv", "job_id") == [("long",), ("wide",), ("short",)]
    assert (tmp_path / "jobs-fifo.csv").exists()
    assert [each["policy"] for each in figures_of(carpool, *arguments[1:])] == ["fifo", "srtf"]


def test_what_was_moved_is_said(carpool: Cli, tmp_path: Path) -> None:
    """At 6 GB/s 600 MiB take 104.858 ms each way: turns of 1 s, A leaves once and comes back, and so does B."""
    (tmp_path / "crowded.csv").write_text(CROWDED)
    arguments = ["simulate", str(tmp_path / "crowded.csv"), "--device-memory", "1GiB", "--policy", "tq"]
    arguments += ["--quantum", "1s", "--set", "max_move_share_ppm=1000000", "--resolution", "0"]
    figures = figures_of(carpool, *arguments[1:], "--jobs-csv", tmp_path / "jobs.csv")
    assert (figures["offloads"], figures["moved_gib"]) == (2, 4 * 600 / 1024)
    assert figures["moving_s"] == pytest.approx(4 * 0.104858)
    assert figures["makespan_s"] == pytest.approx(3.8 + 4 * 0.104858, abs=1e-5)
    assert figures["moving"] == pytest.approx(figures["moving_s"] / figures["makespan_s"])
    share = f"{figures['moving']:.1%}"
    assert carpool.ok(*arguments).splitlines()[-1] == f"tq: 2 offloads, 2.3 GiB moved, {share} of the time"
    assert rows(tmp_path / "jobs.csv", "offloads", "moved_mib", "moving_s") == [("1", "1200.000", "0.209716")] * 2
    off = figures_of(carpool, *arguments[1:], "--oversubscribe", "off")
    assert (off["offloads"], off["moved_gib"], off["moving"], off["makespan_s"]) == (0, 0.0, 0.0, 3.8)


def test_a_refused_job_is_not_overlooked(carpool: Cli, trace: Path) -> None:
    last = carpool.ok("simulate", str(trace), "--policy", "fifo").splitlines()[-1]
    assert last == "fifo: 1 job refused; job wide needs 2 devices, but there are 1"


def test_the_same_seed_gives_the_same_bytes(home: Path, tmp_path: Path) -> None:
    carpool = Cli(home)  # whose processes do not even have the same hashes

    def run(seed: str) -> tuple[dict[str, Any], bytes, bytes, bytes]:
        paths = [tmp_path / f"{seed}.{suffix}" for suffix in ("html", "csv", "trace.csv")]
        outputs = ["--report", str(paths[0]), "--jobs-csv", str(paths[1]), "--save-trace", str(paths[2])]
        source = ["--generate", "poisson:jobs=50,gpus=philly", "--seed", seed, "--devices", "8", "--policy", "srtf"]
        figures = figures_of(carpool, *source, *outputs)
        del figures["jobs_per_second_simulated"]
        html, jobs, trace = (path.read_bytes() for path in paths)
        return figures, html, jobs, trace

    first = run("7")
    assert run("7") == first
    assert run("8")[0] != first[0]


def test_a_saved_trace_is_simulated_as_the_jobs_were(carpool: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "saved.csv"
    options = ["--devices", "2", "--policy", "las"]
    source = ["--generate", "poisson:jobs=40,devices=2", "--limit", "30", "--save-trace", str(saved)]
    first, again = figures_of(carpool, *source, *options), figures_of(carpool, saved, *options)
    assert len(read_trace(saved)) == first["jobs"] == 30
    differ = {"jobs_per_second_simulated", "made_with"}
    assert {name: first[name] for name in first.keys() - differ} == {
        name: again[name] for name in again.keys() - differ
    }


def test_a_policy_and_an_interference_model_of_ones_own(carpool: Cli, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "half.py").write_text(
        "class Half:\n    name = 'half'\n    def speeds(self, jobs):\n        return [500_000] * len(jobs)\n"
    )
    whole = carpool.ok("simulate", str(trace), "--devices", "2", "--policy", "./mine.py:Widest", cwd=tmp_path)
    assert whole.splitlines()[1].startswith("./mine.py:Widest")
    arguments = ["--devices", "1", "--limit", "1", "--slowdown", "half.py:Half"]
    assert figures_of(carpool, trace, *arguments, cwd=tmp_path)["avg_jct_s"] == pytest.approx(20)


def test_runs_are_written_by_device_and_lane(carpool: Cli, trace: Path, tmp_path: Path) -> None:
    """As `test_the_figures_of_a_small_trace` says when; under fair, jobs of one owner take turns in one lane each."""
    runs = tmp_path / "runs.csv"
    carpool.ok("simulate", str(trace), "--devices", "2", "--policy", "fifo", "--runs-csv", str(runs))
    assert runs.read_text().splitlines() == [
        "device,lane,job_id,begin_s,end_s",
        "0,0,long,0.000000,10.000000",
        "0,0,wide,10.000000,14.000000",
        "1,0,wide,10.000000,14.000000",
        "0,0,short,14.000000,15.000000",
    ]
    figures_of(carpool, trace, "--devices", "2", "--policy", "fifo", "--policy", "fair", "--runs-csv", runs)
    for name in ("runs-fair.csv", "runs-fifo.csv"):
        jobs, lanes = zip(*rows(tmp_path / name, "job_id", "lane"), strict=True)
        assert set(jobs) == {"long", "wide", "short"} and "0" not in lanes, name


def test_a_journal_is_looked_for_where_the_daemon_lives(carpool: Cli, home: Path) -> None:
    for option in (["--policy", "fifo"], ["--verify"]):
        result = carpool.fails(1, "simulate", "--from-journal", *option)
        assert f"{home}" in result and "there is no journal" in result


@pytest.mark.usefixtures("whole_torch")
def test_nothing_that_is_not_needed_is_loaded(carpool: Cli, trace: Path) -> None:
    top = {name.partition(".")[0] for name in loaded(carpool, "simulate", str(trace), "--policy", "fifo")}
    assert top.isdisjoint({"plotly", "numpy", "torch", "aiohttp", "asyncio"})


def test_progress_is_for_terminals_and_ctrl_c_says_how_far_it_came(carpool: Cli, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["simulate", "--generate", "poisson:jobs=100000,devices=8", "--devices", "8", "--policy", "srtf"]
    arguments += [f"--{name}={tmp_path / name}" for name in ("jobs-csv", "report")]
    own = {"start_new_session": True, "preexec_fn": heed_the_terminal}
    process = carpool.start(arguments, stdout=theirs, stderr=theirs, **own)
    os.close(theirs)
    shown, interrupted = b"", False
    with suppress(OSError):  # a terminal that is closed cannot be read; one that is not read holds up who writes
        while piece := os.read(ours, 4096):
            shown += piece
            if not interrupted and b"100,000 jobs" in shown:
                process.send_signal(signal.SIGINT)
                interrupted = True
    process.communicate()
    os.close(ours)
    assert re.search(rb"interrupted: srtf [\d,]+ of 100,000 jobs\r\n", shown)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("terminal", "option", "shown"), [(True, [], True), (True, ["--json"], False), (False, [], False)]
)
def test_no_progress_where_the_output_goes_elsewhere(
    trace: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, option: list[str], shown: bool
) -> None:
    lines: list[bool] = []

    class Line(Progress):
        def __init__(self, text: str, shown: bool = True) -> None:
            lines.append(shown)
            super().__init__(text, False)

    monkeypatch.setattr(run, "Progress", Line)
    monkeypatch.setattr(source, "Progress", Line)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert main(["simulate", str(trace), "--policy", "fifo", *option]) == 0
    assert lines == [shown] * 2


def test_ctrl_c_leaves_whole_files_of_policies_that_have_ended(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = driver.simulate

    def simulate_once(jobs: list[TraceJob], options: Options, progress: Callable[[int], None]) -> Any:
        if options.settings.policy == "srtf":
            progress(2)
            raise KeyboardInterrupt
        return real(jobs, options, progress)

    monkeypatch.setattr(driver, "simulate", simulate_once)
    lists = ["--jobs-csv", str(tmp_path / "jobs.csv"), "--report", str(tmp_path / "report.html")]
    assert main(["simulate", str(trace), "--policy", "fifo", "--policy", "srtf", *lists]) == 130
    first = tmp_path / "jobs-fifo.csv"
    assert len(first.read_text().splitlines()) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"trace.csv", "jobs-fifo.csv"}
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "interrupted: 1 of 2 simulations, policy srtf: 2 of 3 jobs" in captured.err
    assert f"written: {first}" in captured.err


def test_a_file_that_is_written_stays_what_it_was_until_then(trace: Path, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept.csv", tmp_path / "link.csv"
    kept.write_text("earlier")
    kept.chmod(0o640)
    link.symlink_to(kept)
    with pytest.raises(ValueError, match="half"), writing(link) as draft:
        draft.write_text("half")
        raise ValueError("half")
    assert kept.read_text() == "earlier"
    assert main(["simulate", str(trace), "--policy", "fifo", "--jobs-csv", str(link)]) == 0
    assert link.is_symlink() and kept.read_text().startswith("job_id")
    assert kept.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"trace.csv", "kept.csv", "link.csv"}


def test_a_daemons_journal_is_never_overwritten(carpool: Cli, trace: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.sqlite"
    sqlite3.connect(journal).execute("CREATE TABLE precious (thing)").connection.close()
    before = journal.read_bytes()
    for option in ("--save-trace", "--jobs-csv", "--runs-csv", "--report"):
        assert "is a database" in carpool.fails(2, "simulate", str(trace), "--policy", "fifo", option, str(journal))
    assert journal.read_bytes() == before


@pytest.mark.parametrize("option", ["--save-trace", "--jobs-csv", "--report"])
def test_a_full_disk_names_the_file(carpool: Cli, trace: Path, option: str) -> None:
    result = carpool.fails(1, "simulate", str(trace), "--policy", "fifo", option, "/dev/full")
    assert "/dev/full cannot be written: No space left on device" in result and "free disk space" in result


# Several devices in lanes


def test_a_preset_and_what_prevails_over_it(asked: list[Options], believed: Path) -> None:
    common = ["simulate", str(believed), "--device-memory", "10GiB"]
    assert main([*common, "--preset", "carma"]) == 0
    assert main([*common, "--preset", "carma", "--placement", "lug", "--set", "warm_limit=3", "--policy", "fifo"]) == 0
    whole, mine = asked
    preset = PRESETS["carma"]
    assert (whole.settings.policy, whole.settings.placement) == (preset.policy, preset.placement)
    assert whole.settings.refuse_growth == preset.settings["refuse_growth"]
    assert whole.telemetry_us == 1_000_000, "one device, but a strict placement"
    assert (mine.settings.policy, mine.settings.placement, mine.settings.warm_limit) == ("fifo", "lug", 3)
    assert mine.settings.allocation is Allocation.LANES


def test_what_is_told_and_when_memory_is_needed(asked: list[Options], believed: Path) -> None:
    common = ["simulate", str(believed), "--device-memory", "10GiB", "--lanes"]
    warm = ["--memory-warmup", "60s", "--memory-at-first", "25%", "--telemetry", "2s", "--interference", "0.05"]
    assert main([*common, *warm, "--estimator", "column:low"]) == 0
    assert main([*common, "--estimator", "none"]) == 0
    assert main([*common, "--estimator", "oracle"]) == 0
    low, none, oracle = asked
    assert (low.estimator, low.declare_memory) == ("low", True)
    assert (low.warmup_us, low.warmup_share_ppm, low.telemetry_us) == (60_000_000, 250_000, 2_000_000)
    assert low.interference.speeds([TraceJob("x", 0, 1, utilization_ppm=1)] * 2) == [952_380] * 2
    assert (none.estimator, none.declare_memory) == ("", False)
    assert (oracle.estimator, oracle.declare_memory, oracle.telemetry_us) == ("", True, 0)
    assert oracle.warmup_share_ppm == 1_000_000


def test_jobs_that_run_out_of_memory_are_not_overlooked(carpool: Cli, believed: Path, tmp_path: Path) -> None:
    """Both are believed to need 2000 MiB, and need 6000 of 10240: the second is denied it, and comes back alone."""
    arguments = ["simulate", str(believed), "--device-memory", "10GiB", "--preset", "carma", "--oversubscribe", "off"]
    arguments += ["--estimator", "column:low", "--resolution", "0", "--jobs-csv", str(tmp_path / "jobs.csv")]
    figures = figures_of(carpool, *arguments[1:])
    attempts, denied, outcomes = zip(*rows(tmp_path / "jobs.csv", "attempts", "out_of_memory", "outcome"), strict=True)
    assert outcomes == ("succeeded",) * 3
    assert figures["out_of_memory"] == sum(map(int, denied)) > 0
    assert figures["recovered"] == 3 - attempts.count("1")
    said = next(line for line in carpool.ok(*arguments).splitlines() if "memory was denied" in line)
    assert "recovered" in said


MINE = """
from carpool.core.placement import BasePlacement

class Mine(BasePlacement):
    name = "mine"
    def device_key(self, view, job, device):
        return (len(device.jobs),)

class Wrong(BasePlacement):
    name = "wrong"
    def device_key(self, view, job, device):
        return 1.5
"""


def test_a_placement_policy_of_ones_own(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    common = ["simulate", str(trace), "--devices", "4", "--resolution", "0", "--placement"]
    assert main([*common, f"{tmp_path}/mine.py:Mine"]) == 0
    assert main([*common, f"{tmp_path}/mine.py:Wrong"]) != 0
    assert "mine.py:Wrong is wrong: device_key returned 1.5, not a tuple of whole" in capsys.readouterr().err
