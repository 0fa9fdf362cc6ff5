"""What happens with a daemon while calls fail, and what must hold, whichever fails."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.daemon.daemon_harness import Refused
from tests.faults.evidence import processes_about, words
from tests.faults.nursery import PATIENCE_S, Ended, Nursery, Served

#: A daemon in which nothing is planned to fail; its shims may have faults.
SOUND = "daemon 3"
LIMITS = "retry_pause = 0\nkeep_jobs = 4\n"
#: What Python itself says of an event loop that could not be made.
DELETED_LOOP = re.compile(r"Exception ignored in: <function BaseEventLoop.__del__(?:.*\n)*?AttributeError.*\n")
NO_ANSWER = (OSError, HTTPException, ValueError)


class Fault(NamedTuple):
    """``kind`` of failure of the ``number``-th call of a kind at a site, in a stage of a process."""

    process: str
    stage: str
    call: str
    site: str
    number: int
    kind: str


class Expected(NamedTuple):
    """Of a job that was acknowledged.  ``runs``: as often its command may have been started at most."""

    name: str
    outcome: str
    code: int | None
    runs: int


class Story:
    """``errors`` is what must not be; ``effects`` is what somebody notices of the faults."""

    def __init__(
        self, nursery: Nursery, root: Path, planned: Sequence[Fault], usual: Mapping[str, Counter[str]] | None = None
    ) -> None:
        """``usual``: what daemons without faults have open when no job is left."""
        self.root, self.planned, self.usual = root, planned, usual or {}
        self.trace = root / "trace"
        self.trace.touch(mode=0o666)
        self.plan = root / "plan.json"
        self.plan_for(planned)
        self.daemon = Served(nursery, root / "home", self.plan)
        self.daemon.home.mkdir(mode=0o711)
        (self.daemon.home / "limits.toml").write_text(LIMITS)
        self.expected: dict[int, Expected] = {}
        self.seen: dict[int, dict[str, Any]] = {}
        self.refused: list[str] = []  # names of jobs whose submission was refused in so many words
        self.errors: list[str] = []
        self.calls: list[tuple[Any, ...]] = []  # process, stage, call, site, number, how it failed
        self.effects: list[str] = []
        self.said_in_terminal = ""
        self.descriptors: dict[str, Counter[str]] = {}

    # What may fail

    def plan_for(self, faults: Sequence[Fault]) -> None:
        """Processes that start from now on have these."""
        found = [{"where": fault[:5], "kind": fault.kind} for fault in faults]
        self.plan.write_text(json.dumps({"trace": str(self.trace), "faults": found}))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What is refused is an effect; silence is an error unless the daemon has ended."""
        try:
            yield
        except Refused as refused:
            self.effects.append(f"{name}: {refused.status} {refused.code}: {refused.message}")
            if refused.code == "internal":
                self.errors.append(f"{name}: {refused.message}")
        except NO_ANSWER as error:
            if isinstance(error, TimeoutError):
                self.errors.append(f"{name}: no answer")
            else:
                self.effects.append(f"{name}: {error!r}")
            self._alive(name)

    def _alive(self, name: str) -> None:
        """A daemon that has ended is started again, without faults."""
        process = self.daemon.process
        with suppress(subprocess.TimeoutExpired):
            assert process is not None
            process.wait(0.3)
            self.effects.append(f"{name}: the daemon ended with status {process.returncode}")
            if process.returncode not in (0, 1):
                self.errors.append(f"{name}: the daemon ended with status {process.returncode}")
            self.start(SOUND)

    def start(self, process: str) -> None:
        try:
            self.daemon.begin(process)
        except Ended as ended:
            self.effects.append(f"start: {ended}")
            if process == SOUND:
                raise AssertionError(f"a daemon without faults does not start: {ended}, {self.texts()}") from None
            assert self.daemon.process is not None
            with suppress(subprocess.TimeoutExpired):
                self.daemon.process.wait(2.0)
            if "message" not in str(ended):
                self.errors.append(f"start: {ended} (status {self.daemon.process.poll()})")
            self.start(SOUND)

    def submit(
        self, name: str, *argv: str, outcome: str = "succeeded", code: int | None = 0, runs: int = 1, **more: Any
    ) -> int:
        """0: refused."""
        job = 0
        with self.step(f"submit {name}"):
            try:
                job = self.daemon.submit(*argv, name=name, **more)
            except Refused:
                self.refused.append(name)
                raise
            self.expected[job] = Expected(name, outcome, code, runs)
        return job

    def marked(self, name: str, rest: str) -> tuple[str, ...]:
        """A command that leaves a trace each time it runs."""
        return ("/bin/sh", "-c", f"echo x >> {self.root / name}; {rest}")

    def wait(self, *jobs: int) -> None:
        for job in filter(None, jobs):
            name = self.expected[job].name
            with self.step(f"wait for {name}"):
                info = self.daemon.wait(job)
                if info["phase"] == "ended":
                    self.seen[job] = info
                else:
                    self.errors.append(f"{name} does not end: {info['phase']}, {info.get('reason')}")

    def until(self, what: Callable[[], object], text: str, patience_s: float = PATIENCE_S / 2) -> None:
        """For what nobody tells.  ``text``: what is wrong if it does not happen; empty: nothing."""
        deadline = time.monotonic() + patience_s
        while not what():
            if time.monotonic() > deadline:
                self.errors += [f"in vain: {text}"] if text else []
                return
            time.sleep(0.01)

    def happen(self) -> None:
        """What this story is about."""
        raise NotImplementedError

    def run(self) -> Self:
        try:
            self.happen()
        except (AssertionError, *NO_ANSWER) as error:
            self.errors.append(repr(error))
        finally:
            self.clean()
        self.judge()
        self.calls = [tuple(json.loads(line)) for line in self.trace.read_text().splitlines()]
        return self

    def over(self, job: int) -> bool:
        with suppress(*NO_ANSWER, Refused):
            return bool(self.daemon.show(job)["phase"] == "ended")
        return False

    def output(self, job: int) -> str:
        path = self.daemon.home / "jobs" / str(job) / "log"
        return path.read_text() if path.exists() else ""

    def end_of_daemon(self) -> None:
        assert self.daemon.process is not None
        self.daemon.process.send_signal(signal.SIGTERM)
        self.until(lambda: self.daemon.process.poll() is not None, "the daemon ends")  # type: ignore[union-attr]
        self._judge_status("SIGTERM")

    def _judge_status(self, name: str) -> None:
        """1: it says what has failed at the end."""
        assert self.daemon.process is not None
        status = self.daemon.process.returncode
        if status is not None and status != 0 and (status != 1 or "carpoold: " not in self.texts()):
            self.errors.append(f"{name}: status {status}")

    def last(self) -> None:
        assert self.daemon.process is not None
        for _ in range(3):
            with self.step("shutdown"):
                self.daemon.post("/v1/shutdown", {"stop_jobs": True})
                break
        self.until(lambda: self.daemon.process.poll() is not None, "the second daemon ends")  # type: ignore[union-attr]
        self._judge_status("shutdown")
        rows = self.journal()
        if any(row["phase"] != "ended" for row in rows.values()):
            self.third()
            rows = self.journal()
        for job, about in self.expected.items():
            if job in rows and rows[job]["phase"] == "ended":
                self.seen[job] = rows[job]
            elif job not in self.seen or job in rows:  # else it has ended, and was removed
                self.errors.append(f"{about.name} is lost: {rows.get(job)}")
        names = {row["name"] for row in rows.values()}
        self.errors += [f"{name} was refused, and is there" for name in self.refused if name in names]

    def third(self) -> None:
        """Jobs that have not ended can end now."""
        self.start(SOUND)
        for job, row in self.journal().items():
            if row["phase"] != "ended":
                self.effects.append(f"{row['name']} ends with the next daemon only")
                self.daemon.wait(job)
        self.daemon.post("/v1/shutdown", {"stop_jobs": True})
        assert self.daemon.process is not None and self.daemon.process.wait(PATIENCE_S) == 0

    def journal(self) -> dict[int, dict[str, Any]]:
        """What is on the disk."""
        with closing(sqlite3.connect(self.daemon.home / "journal.sqlite")) as connection:
            rows = connection.execute("SELECT id, spec, phase, outcome, exit_code, reason_text FROM jobs").fetchall()
        return {
            job: {
                "name": json.loads(spec)["name"],
                "phase": phase,
                "outcome": outcome,
                "exit_code": code,
                "reason": {"text": text or ""},
            }
            for job, spec, phase, outcome, code, text in rows
        }

    # What must hold

    def judge(self) -> None:
        for job, about in self.expected.items():
            info = self.seen.get(job)
            if info is None:
                self.errors.append(f"{about.name} is lost")
            elif (info["outcome"], info["exit_code"]) != (about.outcome, about.code):
                self._judge_other_end(about, info)
            self._judge_runs(about, info)
        texts = DELETED_LOOP.sub("", self.texts())
        if "Traceback" in texts:
            at = texts.index("Traceback")
            self.errors.append(f"a traceback: {texts[max(0, at - 300) : at + 1500]}")
        self.effects += [
            line.split(" ", 2)[2] for line in texts.splitlines() if re.match(r"\S+ \S+ (ERROR|WARNING)", line)
        ]

    def _judge_other_end(self, about: Expected, info: dict[str, Any]) -> None:
        reason = (info.get("reason") or {}).get("text", "")
        text = f"{about.name}: {info['outcome']} {info['exit_code']}: {reason}"
        self.effects.append(text)
        said = self.said_in_terminal if about.name == "terminal" else reason
        clear = [words(fault.kind) for fault in self.planned] + ["which it waits for"]
        if not any(text in said for text in clear):
            self.errors.append(f"an end that is not explained: {text}")

    def _judge_runs(self, about: Expected, info: dict[str, Any] | None) -> None:
        path = self.root / about.name
        runs = path.read_text().count("x") if path.exists() else 0
        if runs > about.runs:
            self.errors.append(f"{about.name} ran {runs} times")
        if info is not None and info["outcome"] == "succeeded" and not about.name.startswith("pair") and runs != 1:
            self.errors.append(f"{about.name} succeeded and ran {runs} times")

    def texts(self) -> str:
        paths = (self.daemon.home / "daemon.log", self.root / "stderr")
        return "\n".join(path.read_text() for path in paths if path.exists())

    def clean(self) -> None:
        """Nothing of it lives on; what would have is an error."""
        if self.daemon.process is not None and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()
        deadline, late = time.monotonic() + PATIENCE_S, False
        while (left := processes_about(self.root)) and not late:
            time.sleep(0.02)
            late = time.monotonic() > deadline  # and one more look
        for pid, command in left.items():
            self.errors.append(f"left behind: {command}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # What happened

    def fired(self) -> set[Fault]:
        return {Fault(*call) for call in self.calls if call[5] is not None}
