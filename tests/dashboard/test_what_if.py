"""What if: a real daemon's last jobs, simulated under another policy, read in both ways; and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from carpool.dashboard import past_jobs, simulator
from carpool.dashboard import what_if as module
from carpool.dashboard.simulator import WhatIf, WhatIfAnswer, WhatIfError, WhatIfRun, thinned
from carpool.dashboard.what_if import what_if
from carpool.protocol.paths import Home
from carpool.protocol.predictions import checks_text
from tests.daemon.daemon_harness import NOBODY, Daemon
from tests.protocol.test_predictions import CHECK

ROUNDS = ("attach", "rounds:20")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Three jobs have ended: two have used the device, one has not; and an engine that has had a request."""
    with tempfile.TemporaryDirectory(prefix="cp-") as directory:
        made = Daemon(Path(directory) / "home", "--device", "host:64MiB", "--set", "max_lanes=2").started()
        made.home.parent.chmod(0o755)
        for job in (made.fake(*ROUNDS, name="a"), made.fake(*ROUNDS, name="b"), made.submit("true")):
            assert made.wait(job)["outcome"] == "succeeded"
        engine = made.fake("attach", "turn", "pause", engine=True, until="GrantTurn")
        for busy in (True, False):
            made.post(f"/v1/jobs/{engine}/busy", {"busy": busy})
        made.cancelled(engine)
        yield made
        made.stop()


def asked(daemon: Daemon, request: WhatIf) -> WhatIfAnswer:
    return asyncio.run(what_if(daemon.home, request))


def check(run: WhatIfRun, policy: str) -> None:
    assert run.policy == policy and run.figures["jobs"].value == 3 and run.figures["refused"].value == 0
    mean, p95, makespan = (run.figures[name].value for name in ("mean_jct", "p95_jct", "makespan"))
    assert mean is not None and p95 is not None and makespan is not None and 0 < mean <= p95 <= makespan
    for figure in run.figures.values():
        assert figure.value is not None and figure.low is not None and figure.high is not None
        assert figure.low <= figure.value <= figure.high
    assert {lane.device for lane in run.lanes} == {"host0"}
    assert {job for lane in run.lanes for _, _, job in lane.runs} >= {1, 2, 3}
    for lane in run.lanes:
        assert all(before[1] <= after[0] for before, after in zip(lane.runs, lane.runs[1:], strict=False))
        assert all(begin <= end for begin, end, _ in lane.runs)


def test_the_journal_is_simulated_under_both_policies(daemon: Daemon) -> None:
    answer = asked(daemon, WhatIf("srtf"))
    check(answer.now, "fair")
    check(answer.then, "srtf")
    assert any("like is compared with like" in note for note in answer.notes)
    assert not any("may not read" in note for note in answer.notes)
    for run in (answer.now, answer.then):
        half, most = (run.figures[f"engines_{name}"].value for name in ("p50", "p99"))
        assert half is not None and most is not None and 0 < half <= most


def test_a_note_says_how_good_the_last_prediction_was(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert module._trust(home) == []
    home.predictions.write_bytes(checks_text([CHECK, msgspec.structs.replace(CHECK, jobs=7)]))
    (note,) = module._trust(home)
    assert note.startswith(f"{module.TRUST}the mean completion time of 7 jobs on ")
    home.predictions.write_text("{}\n")
    (note,) = module._trust(home)
    assert "is not known" in note and "remove that line, or the file" in note


def test_ranges_are_left_out_where_they_would_take_long(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGES_S", 1e-9)
    answer = asked(daemon, WhatIf("srtf"))
    assert module.UNRANGED in answer.notes
    assert {(figure.low, figure.high) for figure in answer.then.figures.values()} == {(None, None)}
    assert answer.then.figures["jobs"].value == 3


def test_the_same_policy_with_other_settings_is_another_side(daemon: Daemon) -> None:
    answer = asked(daemon, WhatIf("fair", placement="first-fit", settings={"max_jobs": 1, "quantum_us": None}))
    check(answer.now, "fair")
    check(answer.then, "fair")


def test_jobs_that_the_daemon_shows_are_taken_where_the_journal_is_not_readable(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_jobs.os, "access", lambda path, mode: False)
    monkeypatch.setattr(past_jobs, "PAGE", 2)
    answer = asked(daemon, WhatIf("srtf"))
    check(answer.now, "fair")
    check(answer.then, "srtf")
    assert {past_jobs.SHOWN, past_jobs.ENGINES} <= {*answer.notes}
    assert not any("engines" in name for name in answer.now.figures)


#: What another user's process is shown; it need not be able to start an interpreter that is somebody's own.
AS_NOBODY = """
import asyncio, os, sys, tempfile
from pathlib import Path
from carpool.dashboard.past_jobs import past_jobs
from carpool.protocol.paths import Home
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
with tempfile.TemporaryDirectory() as directory:
    past = asyncio.run(past_jobs(Home(Path({home!r})), 24, Path(directory)))
    print(past.notes, Path(past.source[0]).read_text())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_sees_jobs_of_all_as_far_as_they_are_shown(daemon: Daemon) -> None:
    code = AS_NOBODY.format(uid=NOBODY, home=str(daemon.home))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    said, first, *_ = lines = done.stdout.strip().splitlines()
    assert past_jobs.SHOWN in said and said.endswith(",".join(past_jobs.COLUMNS))
    assert len(lines) == 4 and first.startswith("1,0.000000,1,") and first.endswith(",a,100,0")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (WhatIf("srft"), "unknown policy 'srft'"),
        (WhatIf("srtf", placement="nowhere"), "nowhere"),
        (WhatIf("srtf", settings={"quantm": 1}), "unknown setting 'quantm'"),
        (WhatIf("--report=/x"), "--report=/x"),
        (WhatIf("srtf", hours=1e-9), "no job in it"),
    ],
)
def test_the_simulators_own_error_is_the_answer(daemon: Daemon, request_: WhatIf, said: str) -> None:
    with pytest.raises(WhatIfError) as error:
        asked(daemon, request_)
    assert error.value.status == 400 and said in error.value.info.message


def test_without_a_daemon_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(WhatIfError, match="does not answer") as error:
        asyncio.run(what_if(tmp_path, WhatIf("fair")))
    assert error.value.info.hint == "carpool up starts one"


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The simulator stands still."""
    script = tmp_path / "simulator"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(simulator.sys, "executable", str(script))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # of this test alone
    return script


def sleeping() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() in ("sleep", "sh", "simulator")]


def left_behind() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("carpool-what-if-*"))


async def begun(daemon: Daemon) -> asyncio.Task[WhatIfAnswer]:
    task = asyncio.create_task(what_if(daemon.home, WhatIf("srtf")))
    while not sleeping():  # noqa: ASYNC110 - nobody tells of processes
        await asyncio.sleep(0.005)
    return task


async def test_a_request_that_goes_away_ends_the_simulator(daemon: Daemon, endless: Path) -> None:
    task = await begun(daemon)
    with pytest.raises(WhatIfError, match="another what-if") as error:
        await what_if(daemon.home, WhatIf("srtf"))
    assert error.value.status == 429
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not sleeping() and not left_behind()


async def test_what_takes_too_long_is_ended(daemon: Daemon, endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.3)
    with pytest.raises(WhatIfError, match=r"takes longer than 0\.3 s") as error:
        await what_if(daemon.home, WhatIf("srtf"))
    assert error.value.status == 504 and not sleeping()


def test_a_page_gets_no_more_runs_than_it_can_draw() -> None:
    short = [(number * 10, number * 10 + 9, number % 2 + 1) for number in range(1000)]
    assert thinned(short, 1000) == [(first, first + 999, 1) for first in range(0, 10_000, 1000)]
    assert thinned(short, 5) == short
    assert thinned([(0, 5, 1), (5, 2000, 2), (2000, 2001, 3)], 1000) == [(0, 5, 1), (5, 2000, 2), (2000, 2001, 3)]
