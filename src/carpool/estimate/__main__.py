"""``python -m carpool.estimate``: a request as JSON on standard input, an answer per estimator as a line of JSON.

`carpool estimate` runs this in the job's own interpreter, where only PyTorch has to be installed, and ends the process
at the time limit; `carpool.protocol.estimates` has the messages.  The answers go to the descriptor that the
argument names, because standard output belongs to the script that is being rehearsed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any, TextIO

import carpool.estimate as estimates
from carpool.estimate.base import CannotEstimate, Estimator, Run, Subject
from carpool.estimate.faketensor import FakeTensor as Rehearsed


def main() -> int:
    """Answer the request on standard input.  Does not return: the process exits with 0 after the last answer."""
    request = json.load(sys.stdin)
    with os.fdopen(int(sys.argv[1]) if len(sys.argv) > 1 else os.dup(1), "w") as answers:
        keep_to_itself()
        answer_all(subject_of(request), request["estimators"], float(request["limit_s"]), answers)
        answers.flush()
        os._exit(0)  # threads and exit handlers of the script must not run any more


def keep_to_itself() -> None:
    """Connect standard input and output to /dev/null: the script must neither read nor print here."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def subject_of(request: dict[str, Any]) -> Subject:
    """Return the subject of a request, with tuples where JSON has lists."""
    given = dict(request["subject"])
    given["command"] = tuple(given["command"])
    given["input_shapes"] = tuple(map(tuple, given["input_shapes"]))
    given["history"] = tuple(Run(**run) for run in given["history"])
    return Subject(**given)


def answer_all(subject: Subject, names: list[str], limit_s: float, answers: TextIO) -> None:
    """Write the answer of history first, then that of the rehearsal, because other estimators start from its result."""
    if "history" in names:
        tell(answers, "history", subject)
    rest = [name for name in names if name != "history"]
    if not rest:
        return
    rehearsal = Rehearsed(limit_s)
    wanting = {"faketensor", "learned"} if subject.model else {"faketensor", "learned", "horus"}
    if wanting & set(rest):  # `auto` rehearses by itself if necessary
        outcome = attempt(rehearsal, subject)
        if "faketensor" in rest:
            write(answers, "faketensor", outcome)
    known = dataclasses.replace(subject, features=rehearsal.features)
    for name in rest:
        if name != "faketensor":
            tell(answers, name, known)


def tell(answers: TextIO, name: str, subject: Subject) -> None:
    """Let an estimator estimate the subject, and write its answer, or why there is none."""
    try:
        estimator = estimates.make(name)
    except ModuleNotFoundError as error:
        text = f"the estimator {name} is not installed here: {error}"
        write(answers, name, {"error": {"code": "not_installed", "message": text}})
        return
    write(answers, name, attempt(estimator, subject))


def attempt(estimator: Estimator, subject: Subject) -> dict[str, Any]:
    """Return an estimator's prediction, or its error with a hint, in the form of an answer."""
    try:
        return {"prediction": dataclasses.asdict(estimator.estimate(subject))}
    except CannotEstimate as error:
        return {"error": {"code": "cannot_estimate", "message": error.text, "hint": error.hint}}


def write(answers: TextIO, name: str, answer: dict[str, Any]) -> None:
    """Write one answer as a line of JSON, at once: the process may be ended at any moment."""
    answers.write(json.dumps({"estimator": name, **answer}) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
