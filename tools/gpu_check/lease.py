"""The minutes on a borrowed GPU: the riskiest steps first, all results in a folder and, after each step, in an archive.

A lease ends with its time, or when the process is killed; whoever has the folder or the archive goes on with it.
"""

from __future__ import annotations

import os
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tools.gpu_check.plans import Step
from tools.gpu_check.registry import Check
from tools.gpu_check.report import Report, line
from tools.gpu_check.runner import BEGUN, FAILED, GRACE_S, SKIPPED, Result

SUFFIX = ".tar.gz"
#: The file in which a lease of before is found.
RESULTS = "results.md"
#: Runs a check for so many seconds, and lets it leave files in a directory.
Run = Callable[[Check, float, Path], Result]


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @classmethod
    def named(cls, path: Path) -> Folder:
        """``path``: a folder, or the archive of one, which is unpacked beside itself unless that has been done.

        Raises FileNotFoundError, tarfile.TarError.
        """
        if not path.name.endswith(SUFFIX):
            return cls(path.absolute())
        folder = path.absolute().with_name(path.name.removesuffix(SUFFIX))
        if not (folder / RESULTS).exists():
            with tarfile.open(path) as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
                archive.extractall(folder)
        return cls(folder)

    @property
    def archive(self) -> Path:
        return self.path.with_name(f"{self.path.name}{SUFFIX}")

    def of_step(self, name: str) -> Path:
        """A new directory.  What an earlier attempt has left stays."""
        attempts = (self.path / "steps" / f"{name}{number}" for number in ("", *(f"-{n}" for n in range(2, 1000))))
        made = next(path for path in attempts if not path.exists())
        made.mkdir(parents=True)
        return made

    def pack(self) -> None:
        """The archive is whole at any moment: what takes its place is on the disk before."""
        new = self.archive.with_name(f"{self.archive.name}.tmp")
        with new.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
                archive.add(self.path, arcname=".")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.archive)


class Lease:
    """``until`` is a time of the monotonic clock.  What has passed in an earlier lease of the folder has passed."""

    def __init__(
        self, folder: Folder, written: Report, checks: Mapping[str, Check], run: Run, until: float, slack: float = 1.0
    ) -> None:
        self._folder, self._written, self._checks, self._run = folder, written, checks, run
        self._until, self._slack = until, slack
        #: What was tried in vain before comes last: it may be what ended the earlier lease.
        self._tried = {name for name, each in written.results.items() if each.outcome in (FAILED, BEGUN)}
        self._done: set[str] = set()

    def go_on(self) -> None:
        while (step := self._next()) is not None:
            self._end(step, self._one(step))
        for step in self._left():
            self._end(step, self._result(step, SKIPPED, self._why_not(step)))

    def _left(self) -> list[Step]:
        through = self._written.passed | self._done
        return [step for step in self._written.steps.values() if step.name not in through]

    def _next(self) -> Step | None:
        if self._left_s() < GRACE_S:
            return None
        ready = [step for step in self._left() if self._written.passed.issuperset(step.needs)]
        return min(ready, key=lambda step: step.name in self._tried, default=None)

    def _left_s(self) -> float:
        return self._until - time.monotonic() - GRACE_S

    def _why_not(self, step: Step) -> str:
        missing = [name for name in step.needs if name not in self._written.passed]
        if missing and missing[0] in self._done:
            needed = self._written.results[missing[0]]
            return f"it needs {needed.name}, which {_PAST[needed.outcome]}"
        return f"no time was left: go on with LEASE={self._folder.path}"

    def _one(self, step: Step) -> Result:
        begun = "the lease has ended in this step"
        self._note(self._result(step, BEGUN, begun))
        usual_s = step.limit_s * self._slack
        limit_s = min(usual_s, self._left_s())
        try:
            result = self._run(self._checks[step.name], limit_s, self._folder.of_step(step.name))
        except OSError as error:  # no memory, no space: the next one may need less
            return self._result(step, FAILED, f"it could not be run: {error}")
        cut = result.late and limit_s < usual_s
        return (
            replace(result, outcome=SKIPPED, text=f"{limit_s:.0f} s were left, and it takes longer") if cut else result
        )

    def _end(self, step: Step, result: Result) -> None:
        self._done.add(step.name)
        self._note(result)
        say(line(result))

    def _note(self, result: Result) -> None:
        """A full disk ends no lease."""
        try:
            self._written.add(result)
            self._folder.pack()
        except OSError as error:
            say(f"the results cannot be written: {error}")

    def _result(self, step: Step, outcome: str, text: str) -> Result:
        return Result(step.name, self._checks[step.name].title, outcome, text)


_PAST = {FAILED: "failed", SKIPPED: "was skipped", "not seen": "was not seen"}


def undisturbed() -> None:
    """A terminal that goes away ends nothing; a SIGTERM ends the step with all its processes, too.

    No signal is ignored: processes of steps would inherit that.
    """
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def say(text: str) -> None:
    """Where standard output is gone, the files have it."""
    with suppress(OSError, ValueError):
        print(text, flush=True)
