"""A lease of a GPU goes on until its time is over, and whoever has what it has written goes on with it.

On the stub driver, with steps that need no PyTorch.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tools.gpu_check import evidence, lease, plans, runner
from tools.gpu_check.lease import Folder, Lease
from tools.gpu_check.plans import Range, Step
from tools.gpu_check.registry import Check, Needs
from tools.gpu_check.report import ElsewhereError, Report
from tools.gpu_check.runner import BEGUN, FAILED, GRACE_S, NOT_SEEN, PASSED, SKIPPED, Result

WHERE = {"device": "A GPU", "driver": "CUDA 13.0"}
FOREVER = float("inf")


class Made:
    """A lease of steps that have the outcome that they are to have."""

    def __init__(self, folder: Folder, *steps: Step, until: float = FOREVER) -> None:
        self.ran: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.written = Report(folder.path / lease.RESULTS, "lease", WHERE, {step.name: step for step in steps})
        self.written.take_over()
        checks = {step.name: Check(step.name, step.name, Needs.DRIVER, dict, measures=False) for step in steps}
        self._lease = Lease(folder, self.written, checks, self._run, until)

    def _run(self, check: Check, limit_s: float, kept: Path) -> Result:
        self.ran.append(check.name)
        (kept / "said").write_text(check.name)
        outcome = self.outcomes.get(check.name, PASSED)
        return Result(check.name, check.title, outcome, "the reason", late=outcome == FAILED and limit_s < 1)

    def go_on(self) -> dict[str, str]:
        self._lease.go_on()
        return {name: result.outcome for name, result in self.written.results.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "lease")


A, B, C = Step("a"), Step("b", needs=("a",)), Step("c")


def test_what_cannot_work_any_more_is_skipped_with_the_reason(folder: Folder) -> None:
    made = Made(folder, A, B, C)
    made.outcomes["a"] = FAILED
    assert made.go_on() == {"a": FAILED, "c": PASSED, "b": SKIPPED}
    assert made.ran == ["a", "c"]
    assert made.written.results["b"].text == "it needs a, which failed"


def test_what_has_passed_is_not_run_again_and_what_was_tried_in_vain_comes_last(folder: Folder) -> None:
    first = Made(folder, A, B, C)
    first.outcomes["a"] = FAILED
    first.go_on()
    shutil.rmtree(folder.path)  # the archive is all that is left
    again = Made(Folder.named(folder.archive), A, B, C, Step("d"))
    assert again.go_on() == {"a": PASSED, "c": PASSED, "b": PASSED, "d": PASSED}
    assert again.ran == ["d", "a", "b"]
    assert sorted(path.name for path in (folder.path / "steps").iterdir()) == ["a", "a-2", "b", "c", "d"]


def test_a_step_in_which_the_lease_has_ended_comes_last(folder: Folder) -> None:
    class Killed(BaseException):
        pass

    first = Made(folder, A, C)

    def killed(*_: object) -> Result:
        with tarfile.open(folder.archive) as archive:  # what is there when the whole is killed in a step
            found = json.loads(archive.extractfile("./results.json").read())["results"]
        assert [(each["name"], each["outcome"]) for each in found] == [("a", BEGUN)]
        raise Killed

    first._lease._run = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        first.go_on()
    again = Made(folder, A, C)
    again.go_on()
    assert again.ran == ["c", "a"]


def test_nothing_begins_when_no_time_is_left(folder: Folder) -> None:
    made = Made(folder, A, until=time.monotonic() + GRACE_S)
    assert (made.go_on(), made.ran) == ({"a": SKIPPED}, [])
    assert made.written.results["a"].text == f"no time was left: go on with LEASE={folder.path}"


def test_a_step_that_the_end_of_the_lease_cuts_has_not_failed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "GRACE_S", 0.0)
    made = Made(folder, A, until=time.monotonic() + 0.9)
    made.outcomes["a"] = FAILED
    assert made.go_on() == {"a": SKIPPED}
    assert made.written.results["a"].text == "1 s were left, and it takes longer"


def test_a_full_disk_ends_no_lease(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Folder) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "pack", full)
    assert Made(folder, A, B).go_on() == {"a": PASSED, "b": PASSED}
    assert "the results cannot be written: [Errno 28] No space left" in capsys.readouterr().out
    monkeypatch.setattr(Folder, "of_step", lambda *_: full(folder))
    made = Made(folder, C)
    assert made.go_on()["c"] == FAILED
    assert made.written.results["c"].text == "it could not be run: [Errno 28] No space left on device"


def test_results_of_another_machine_are_not_mixed(folder: Folder) -> None:
    Made(folder, A).go_on()
    elsewhere = Report(folder.path / lease.RESULTS, "lease", WHERE | {"device": "Another"}, {})
    with pytest.raises(ElsewhereError, match=r"has results of A GPU, CUDA 13\.0; this is Another, CUDA 13\.0"):
        elsewhere.take_over()


def test_each_step_says_what_was_expected_what_was_found_and_why(folder: Folder) -> None:
    steps = {name: Step(name, look="the docs", expected={"ms": Range(0, 2)}) for name in ("fast", "slow", "bad")}
    written = Report(folder.path / lease.RESULTS, "lease", WHERE, steps)
    written.add(Result("fast", "Fast", PASSED, figures={"ms": 2, "other": 9}))
    assert written.summary() == "1 passed. Nothing to look at."
    written.add(Result("slow", "Slow", PASSED, figures={"ms": 3}))
    assert "| Slow; ms 0 to 2 | passed | ms 3 |" in written.path.read_text()  # at once, not in the end
    written.add(Result("bad", "Bad", FAILED, "no memory", "the whole story"))
    written.add(Result("other", "Other", NOT_SEEN, "nothing counts here"))
    assert written.summary().splitlines() == [
        "2 passed, 1 FAILED, 1 not seen. Look at:",
        "- slow: ms 3, expected 0 to 2 (the docs)",
        "- bad FAILED: no memory (the docs)",
        "- other not seen: nothing counts here",
    ]
    assert "| Bad; ms 0 to 2 | FAILED | no memory |" in written.path.read_text()
    assert "## bad\n\n```\nthe whole story\n```" in written.path.read_text()
    assert (written.passed, written.failed) == ({"fast", "slow"}, True)


def test_steps_need_only_what_comes_before_them() -> None:
    known, before = runner.load(), set[str]()
    for step in plans.LEASE:
        assert step.name in known and step.look and step.limit_s < 100 and before.issuperset(step.needs), step
        before.add(step.name)


def test_every_measurement_has_its_place() -> None:
    known = runner.load()
    assert set(plans.plan("bench", known)) == {name for name, each in known.items() if each.measures}
    assert set(plans.plan("check", known)).isdisjoint(plans.plan("bench", known))


# ---- on the stub driver --------------------------------------------------------------------------

HALF_A_MINUTE = "starts processes that hang or are killed: half a minute"
EXTENTS = ("extent_is_cleared", "extent_is_freed", "memory_of_a_killed_process")


class OnStub:
    """``python -m tools.gpu_check lease`` with a stub driver of its own."""

    def __init__(self, root: Path, machine: dict[str, str], tmp_path: Path) -> None:
        self._root, self.folder = root, Folder(tmp_path / "lease")
        self.environment = machine | {"PATH": f"{tmp_path}{os.pathsep}{machine['PATH']}"}

    def start(self, *arguments: str, out: Path | None = None, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tools.gpu_check", "lease", f"--out={out or self.folder.path}", *arguments]
        own = self.environment | env
        return subprocess.Popen(command, cwd=self._root, env=own, stdout=subprocess.PIPE, stderr=-2, text=True)

    def run(self, *arguments: str, out: Path | None = None, **env: str) -> tuple[int, str]:
        with self.start(*arguments, out=out, **env) as process:
            said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def process_of(self, module: str) -> int:
        """Waits for it."""
        while True:
            for pid in self._processes():
                with suppress(OSError):
                    if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        return pid

    def nothing_runs(self) -> bool:
        """Waits until it is true, for less than a worker of a check waits for another."""
        deadline = time.monotonic() + 30
        while (left := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not left

    def _processes(self) -> Iterator[int]:
        mark = f"EMULATOR_STATE={self.environment['EMULATOR_STATE']}".encode()
        for directory in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (directory / "environ").read_bytes().split(b"\0"):
                    yield int(directory.name)

    @property
    def page(self) -> str:
        return (self.folder.path / "results.md").read_text()

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: each["outcome"] for name, each in self.results.items()}

    @property
    def results(self) -> dict[str, Any]:
        found = json.loads((self.folder.path / "results.json").read_text())["results"]
        return {each["name"]: each for each in found}


@pytest.fixture
def stub(root: Path, stub_machine: dict[str, str], tmp_path: Path) -> OnStub:
    return OnStub(root, stub_machine, tmp_path)


def test_a_first_step_that_fails_takes_no_time_of_the_others(stub: OnStub) -> None:
    status, said = stub.run(EMULATOR_FAIL="cuInit=999")
    first, *others = plans.LEASE
    assert (status, stub.results[first.name]["outcome"]) == (1, FAILED), said
    assert {stub.results[step.name]["outcome"] for step in others} == {SKIPPED}
    assert stub.results["lane_of_2_adam"]["text"] == "it needs lane_of_1_sgd, which was skipped"
    assert [path.name for path in (stub.folder.path / "steps").iterdir()] == [first.name]


@pytest.mark.nightly(HALF_A_MINUTE, stays="test_a_killed_lease_leaves_no_process_of_its_step")
def test_a_hang_in_cuinit_ends_with_its_step(stub: OnStub) -> None:
    status, said = stub.run("--slack=0.1", EXTENTS[0], EMULATOR_FAIL="cuInit=-1")
    assert (status, stub.results[EXTENTS[0]]["outcome"]) == (1, FAILED), said
    assert stub.results[EXTENTS[0]]["text"] == "it was not through after 4 s"
    assert "- driver: the driver was asked what is here: no answer in time" in stub.page


def test_a_killed_lease_leaves_no_process_of_its_step(stub: OnStub) -> None:
    with stub.start("--slack=100", EXTENTS[0], EMULATOR_FAIL="cuMemsetD32Async=-1") as process:
        stub.process_of("tools.gpu_check.worker")
        process.kill()
    assert stub.nothing_runs()


@pytest.mark.nightly(HALF_A_MINUTE, stays="test_a_killed_lease_leaves_no_process_of_its_step")
def test_an_agent_that_hangs_ends_with_its_step(stub: OnStub) -> None:
    with stub.start("lane_outlives_its_agent", EXTENTS[0]) as process:
        os.kill(stub.process_of("carpool.devices.cuda.agent"), signal.SIGSTOP)
        said, _ = process.communicate(timeout=300)
    assert (process.returncode, stub.outcomes) == (1, {"lane_outlives_its_agent": FAILED, EXTENTS[0]: PASSED}), said
    assert stub.nothing_runs()


@pytest.mark.nightly(HALF_A_MINUTE, stays="test_what_has_passed_is_not_run_again_and_what_was_tried_in_vain_comes_last")
def test_a_killed_lease_goes_on_from_its_archive(stub: OnStub, moments: random.Random) -> None:
    with stub.start(*EXTENTS) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.uniform(0, 4))  # whatever it does then
        process.kill()
    before = {name: each for name, each in stub.results.items() if each["outcome"] == PASSED}
    shutil.rmtree(stub.folder.path)
    assert stub.nothing_runs()
    status, said = stub.run(*EXTENTS, out=stub.folder.archive)
    assert (status, stub.outcomes) == (0, dict.fromkeys(EXTENTS, PASSED)), said
    assert len(before) >= 1 and all(stub.results[name] == each for name, each in before.items())


def test_a_step_leaves_its_daemons_homes_and_what_the_driver_says(tmp_path: Path) -> None:
    home, into = tmp_path / "scratch" / "carpool-gpu-1", tmp_path / "kept"
    (home / "journal").mkdir(parents=True)
    (home / "journal" / "1").write_bytes(b"old" + bytes(evidence.MOST))
    os.mkfifo(home / "fifo")
    (home.parent / "cuda-worker-1.log").write_text("[1][CUDA][E][cuMemCreate] no room\n")
    (home.parent / "cuda.log").touch()
    evidence.keep(home.parent, into)
    assert sorted(path.name for path in into.rglob("*")) == ["1", "carpool-gpu-1", "cuda-worker-1.log", "journal"]
    assert (into / home.name / "journal" / "1").read_bytes() == bytes(evidence.MOST)
    assert evidence.driver_words(into) == "[1][CUDA][E][cuMemCreate] no room"


@pytest.mark.nightly(HALF_A_MINUTE, stays="test_a_step_leaves_its_daemons_homes_and_what_the_driver_says")
def test_evidence_is_kept_of_what_passes_too(stub: OnStub, tmp_path: Path) -> None:
    for name, said in (("nvidia-smi", "Driver Version : 580.00"), ("dmesg", "NVRM: Xid (PCI:0000:01:00): 31, MMU")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{said}'\necho other\n")
        (tmp_path / name).chmod(0o700)
    status, said = stub.run("jobs_of_copies")
    assert status == 0, said
    with tarfile.open(stub.folder.archive) as archive:
        names = archive.getnames()
    assert any(name.endswith("/daemon.log") for name in names) and any("/journal" in name for name in names), names
    step = stub.folder.path / "steps" / "jobs_of_copies"
    assert (step / "nvidia-smi.txt").read_text().startswith("Driver Version : 580.00")
    assert (step / "xid.txt").read_text() == "NVRM: Xid (PCI:0000:01:00): 31, MMU\n"
