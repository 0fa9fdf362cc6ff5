"""Each check in a process of its own, so that one that hangs or poisons its context takes no other with it."""

from __future__ import annotations

import faulthandler
import importlib
import json
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from tests.gpu import apart, checks, measurements
from tests.gpu.registry import CHECKS, Check, Figures, Skip

#: What a check gets besides its limit to tell what it waited for, and to end its processes.
GRACE_S = 10.0
#: Characters: the end of what a check said that could not tell itself how it ended.
MOST_DETAILS = 5000
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"


class OutOfTime(BaseException):
    """Raised in the middle of a check; not an Exception, so that no check takes it for something of its own."""


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    title: str
    outcome: str
    text: str = ""  # why it failed or was skipped, in a line
    details: str = ""  # where it failed, what the daemon and the jobs said
    figures: Figures = field(default_factory=dict)
    seconds: float = 0.0


def load() -> dict[str, Check]:
    """Everything there is, in the order of the modules' names."""
    for package in (checks, measurements):
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return CHECKS


def run_here(one: Check, limit_s: float) -> Result:
    begin = time.monotonic()
    try:
        with _in_time(limit_s):
            figures = one.function() or {}
    except Skip as reason:
        return Result(one.name, one.title, SKIPPED, str(reason))
    except BaseException as error:  # noqa: BLE001 - whatever happens belongs into the table
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return Result(one.name, one.title, FAILED, why, traceback.format_exc(limit=-6), seconds=_since(begin))
    return Result(one.name, one.title, PASSED, figures=figures, seconds=_since(begin))


@contextmanager
def _in_time(limit_s: float) -> Iterator[None]:
    """Raises OutOfTime where Python waits; where the driver does not come back, says on standard error where."""

    def out_of_time(*_: object) -> None:
        raise OutOfTime(f"no end after {limit_s:.0f} s")

    faulthandler.dump_traceback_later(limit_s + GRACE_S / 2)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 2)


def run_apart(one: Check, limit_s: float) -> Result:
    """Over after ``limit_s`` and `GRACE_S`, whatever the check does."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "tests.gpu", "one", one.name, f"--limit={limit_s}"]
    ended = apart.run(command, limit_s + GRACE_S)
    lines = ended.output.strip().splitlines()
    try:
        result = Result(**json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        how = "killed after its time" if ended.status is None else f"exit status {ended.status}"
        return Result(one.name, one.title, FAILED, how, ended.errors[-MOST_DETAILS:], seconds=_since(begin))
    return replace(result, details=f"{result.details}{ended.errors[-MOST_DETAILS:]}" if result.details else "")


def as_json(result: Result) -> str:
    return json.dumps(asdict(result))
