"""Each check in a process of its own, so that one that hangs or poisons its context takes no other with it."""

from __future__ import annotations

import faulthandler
import importlib
import json
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from tools.gpu_check import apart, checks, evidence, measurements
from tools.gpu_check.registry import CHECKS, Check, Figures, NotSeen, Skip

#: What a check gets besides its limit to tell what it waited for, and to end its processes.
GRACE_S = 10.0
#: Characters: the end of what a check said that could not tell itself how it ended.
MOST_DETAILS = 5000
PASSED, FAILED, SKIPPED, NOT_SEEN, BEGUN = "passed", "FAILED", "skipped", "not seen", "begun"


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
    late: bool = False  # it was not through when its time was over


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
    except NotSeen as reason:
        return Result(one.name, one.title, NOT_SEEN, str(reason), seconds=_since(begin))
    except BaseException as error:  # noqa: BLE001 - whatever happens belongs into the table
        late = isinstance(error, OutOfTime)
        why = str(error) if late else f"{type(error).__name__}: {error}".splitlines()[0]
        story = traceback.format_exc(limit=-6)
        return Result(one.name, one.title, FAILED, why, story, seconds=_since(begin), late=late)
    return Result(one.name, one.title, PASSED, figures=figures, seconds=_since(begin))


@contextmanager
def _in_time(limit_s: float) -> Iterator[None]:
    """Raises OutOfTime where Python waits; where the driver does not come back, says on standard error where."""

    def out_of_time(*_: object) -> None:
        raise OutOfTime(f"it was not through after {limit_s:.0f} s")

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


def run_apart(one: Check, limit_s: float, kept: Path | None = None) -> Result:
    """Over soon after ``limit_s``, whatever the check does; what it leaves besides is in ``kept``.

    A process in between ends everything that the check has started when this one is killed.
    """
    with ExitStack() as stack:
        directory = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kept-")))
        command = [sys.executable, "-m", "tools.gpu_check", "one", one.name, f"--limit={limit_s}", f"--out={directory}"]
        begin = time.monotonic()
        ended = apart.run(command, limit_s + 2 * GRACE_S)
        return _result(one, ended, begin)


def supervise(one: Check, limit_s: float, kept: Path) -> Result:
    """Over after ``limit_s`` and `GRACE_S`, or when the parent of this process dies."""
    apart.end_with_parent()
    begin = time.monotonic()
    with evidence.watched(kept):
        command = [sys.executable, "-m", "tools.gpu_check", "here", one.name, f"--limit={limit_s}"]
        ended = apart.run(command, limit_s + GRACE_S, partial(evidence.keep, into=kept))
    for name, text in (("output", ended.output), ("errors", ended.errors)):
        evidence.write(kept / f"{name}.txt", text)
    result = _result(one, ended, begin)
    said = evidence.driver_words(kept) if result.outcome == FAILED else ""
    return replace(result, text=f"{result.text}; the driver says: {said}") if said else result


def _result(one: Check, ended: apart.Ended, begin: float) -> Result:
    """What the process has printed last, or how it has ended without that."""
    try:
        result = Result(**json.loads(ended.output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        why, errors = _ending(ended), ended.errors[-MOST_DETAILS:]
        return Result(one.name, one.title, FAILED, why, errors, seconds=_since(begin), late=ended.status is None)
    return replace(result, details=f"{result.details}{ended.errors[-MOST_DETAILS:]}" if result.details else "")


def _ending(ended: apart.Ended) -> str:
    last = "".join(ended.errors.strip().splitlines()[-1:])
    if ended.status is None:
        return f"it did not come back, and was killed after its time: {last}"
    if ended.status < 0:
        return f"its process died of {signal.Signals(-ended.status).name}: {last}"
    return f"its process ended with status {ended.status}: {last}"


def as_json(result: Result) -> str:
    return json.dumps(asdict(result))
