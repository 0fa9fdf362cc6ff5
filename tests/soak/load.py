"""What users do all day, each kind of work with the outcome that it must have."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carpool.core.model import MIB
from tests.daemon.daemon_harness import FAKEJOB, Daemon, Refused

TRAINING = Path(__file__).parents[1] / "adversary" / "training.py"


class Load:
    """One user.  ``wrong`` has what came out differently than it must; ``done`` counts by kind."""

    def __init__(self, daemon: Daemon, alone: str, seed: int) -> None:
        self._daemon, self._alone, self._rng = daemon, alone, random.Random(seed)
        self.done, self.wrong = Counter[str](), list[str]()
        self._kinds: dict[Callable[[], object], int] = {
            self.short: 40, self.failing: 10, self.cancelled: 10, self.chain: 5, self.large: 20, self.talkative: 5,
            self.questions: 20, self.refused: 5, self.training: 1,
        }  # fmt: skip

    def step(self) -> None:
        """One piece of work, from its submission to its end."""
        kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        kind()
        self.done[kind.__name__] += 1

    def _ended(self, job: int, outcome: str) -> dict[str, Any]:
        info: dict[str, Any] = {"phase": "unknown"}
        while info["phase"] != "ended":
            info = self._daemon.get(f"/v1/jobs/{job}/wait?timeout_s=20")
        if info["outcome"] != outcome:
            self.wrong.append(f"job {job} {info['outcome']}, not {outcome}: {info['reason']}")
        return info

    def short(self) -> None:
        self._ended(self._daemon.submit("true"), "succeeded")

    def failing(self) -> None:
        job = self._daemon.submit("false", retries=1)
        if self._ended(job, "failed")["attempt"] != 2:
            self.wrong.append(f"job {job} was not tried twice")

    def cancelled(self) -> None:
        job = self._daemon.python("import signal; signal.pause()")
        self._daemon.cancel(job)
        self._ended(job, "cancelled")

    def chain(self) -> None:
        first = self._daemon.submit("true")
        self._ended(self._daemon.submit("true", after=[first]), "succeeded")

    def large(self) -> None:
        """Memory that the device has not for all at once."""
        size = self._rng.randrange(4, 12) * MIB
        steps = ("attach", f"grow:p:{size}", "iterate:20", "release")
        self._ended(self._daemon.submit(sys.executable, str(FAKEJOB), *steps), "succeeded")

    def talkative(self) -> None:
        job = self._daemon.python("print('x' * 99 + '\\n', end='' ) or [print('y' * 99) for _ in range(10_000)]")
        self._ended(job, "succeeded")
        if len(self._daemon.output(job)) < 1_000_000:
            self.wrong.append(f"a part of the log of job {job} is missing")

    def training(self) -> None:
        job = self._daemon.submit(sys.executable, str(TRAINING), "300")
        self._ended(job, "succeeded")
        if (found := trained(self._daemon.output(job))) != self._alone:
            self.wrong.append(f"job {job} has trained {found}, not {self._alone}")

    def questions(self) -> None:
        """The last pages of everything."""
        for path in ("/v1/jobs?limit=50", "/v1/devices", "/v1/policy", "/v1/version"):
            self._daemon.get(path)

    def refused(self) -> None:
        try:
            self._daemon.submit("true", device="none")
        except Refused:
            return
        self.wrong.append("a device that there is not was accepted")


def trained(output: str) -> str:
    """The weights that a training came to."""
    return str(json.loads(output.splitlines()[-1])["weights"])
