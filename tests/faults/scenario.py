"""One second in the life of a daemon: jobs of every kind, a restart, an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemon.daemon_harness import FAKEJOB, Refused, submission
from tests.daemon.forks import SOURCE
from tests.faults.evidence import let_go, more_than, open_files, settling
from tests.faults.nursery import INJECT, PATIENCE_S
from tests.faults.story import NO_ANSWER, Expected, Story

STOPPED_S = 2.0
SIZE = 10 << 20


class Scenario(Story):
    """Everything that a daemon does, in two lives of it."""

    def happen(self) -> None:
        self.start("daemon 1")
        self.few_jobs()
        self.questions()
        self.in_the_terminal()
        self.quiet("first")
        pair = self.pair()
        self.end_of_daemon()
        self.start("daemon 2")
        self.second(pair)
        self.quiet("second")
        self.last()

    def few_jobs(self) -> None:
        plain = self.submit("plain", *self.marked("plain", "echo out"))
        retried = self.submit("retried", *self.marked("retried", "exit 3"), outcome="failed", code=3, runs=2, retries=1)
        long = self.submit("long", *self.marked("long", "echo on; exec sleep 600"), outcome="cancelled", code=None)
        if long:
            log = self.daemon.home / "jobs" / str(long) / "log"
            self.until(lambda: self.over(long) or (log.exists() and log.read_text() == "on\n"), "long runs")
            with self.step("cancel"):
                self.daemon.cancel_unless_ended(long)
        self.many()
        self.wait(plain, retried, long)

    def many(self) -> None:
        with self.step("submit many"):
            jobs = [submission(*self.marked(name, "true"), name=name) for name in ("one", "other")]
            try:
                ids = self.daemon.post("/v1/submissions", {"jobs": jobs, "follows": [[], [0]]})["ids"]
            except Refused:
                self.refused += ["one", "other"]
                raise
            self.expected |= {
                job: Expected(name, "succeeded", 0, 1) for job, name in zip(ids, ("one", "other"), strict=True)
            }
        self.wait(*[job for job, about in self.expected.items() if about.name in ("one", "other")])

    def questions(self) -> None:
        paths = (
            "/v1/jobs",
            "/v1/devices",
            "/v1/events?since=0",
            "/v1/jobs/1",
            "/v1/jobs/1/logs",
            "/v1/policy",
            "/v1/jobs/1/logs?follow=1",
        )
        for path in paths:
            with self.step(f"GET {path}"):
                self.daemon.get(path)
        with self.step("PUT /v1/policy"):
            self.daemon.put("/v1/policy", {"name": "fifo", "settings": {"kill_after_us": 100_000}})

    def in_the_terminal(self) -> None:
        job = self.submit("terminal", *self.marked("terminal", "true"), foreground=True)
        if not job:
            return
        command = [sys.executable, str(INJECT), "foreground", str(self.daemon.home), str(job)]
        environment = os.environ | {"PYTHONPATH": str(SOURCE), "CARPOOL_TEST_FAULTS": str(self.plan)}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, said = process.communicate()
            self.errors.append("carpool run hangs")
        if process.returncode:
            self.said_in_terminal = said
            self.effects.append(f"carpool run: {process.returncode} {said}")
            if "Traceback" in said:
                self.errors.append(f"carpool run: {said}")
            with self.step("cancel terminal"):
                self.daemon.cancel_unless_ended(job)
        self.wait(job)

    def quiet(self, when: str) -> None:
        """No job is left: what is open is the daemon's own."""
        assert self.daemon.process is not None
        deadline, late = time.monotonic() + PATIENCE_S, False
        wanted, found = self.usual.get(when), open_files(self.daemon.process.pid)
        while not late and (settling(found) if wanted is None else more_than(found, wanted)):
            time.sleep(0.02)
            late = time.monotonic() > deadline  # and one more look
            found = open_files(self.daemon.process.pid)
        self.descriptors[when] = found
        if wanted is not None and (more := more_than(found, wanted)):
            self.errors.append(f"descriptors left in the {when} daemon: {more}")

    def pair(self) -> dict[int, Path]:
        """Two jobs of which the device has room for one.  The first is stopped, so its shim moves its memory."""
        jobs: dict[int, Path] = {}
        first = self.filled(1, jobs)
        with self.stopped(first):
            second = self.filling(2, jobs)
            self.until(lambda: self.is_filled(second), "", STOPPED_S)
        self.until(lambda: self.is_filled(second), "pair2 is filled")
        return jobs

    def filled(self, value: int, jobs: dict[int, Path]) -> int:
        job = self.filling(value, jobs)
        self.until(lambda: self.is_filled(job), f"pair{value} is filled")
        return job

    def filling(self, value: int, jobs: dict[int, Path]) -> int:
        fifo = self.root / f"fifo{value}"
        os.mkfifo(fifo)
        fill = ("turn", f"grow:p:{SIZE}", f"touch:p:{SIZE}:{value}", "iterate:5", "release", "say:filled")
        steps = ("attach", "help", *fill, f"listen:{fifo}", f"check:{SIZE}:{value}", "release")
        job = self.submit(f"pair{value}", sys.executable, "-ISu", str(FAKEJOB), *steps)
        if job:
            jobs[job] = fifo
        return job

    def is_filled(self, job: int) -> bool:
        return not job or "filled" in self.output(job) or self.over(job)

    @contextmanager
    def stopped(self, job: int) -> Iterator[None]:
        """Its main process stands still."""
        pid = None
        with suppress(*NO_ANSWER, Refused):
            pid = self.daemon.show(job)["pid"] if job and not self.over(job) else None
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGSTOP)
        yield
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGCONT)

    def second(self, pair: dict[int, Path]) -> None:
        after = [job for job in pair if not self.over(job)][:1]
        last = self.submit("after", *self.marked("after", "true"), after=after)
        for fifo in pair.values():
            let_go(fifo)
        self.wait(*pair, last)
