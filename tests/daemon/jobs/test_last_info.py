"""What stays in memory of a job that is over has a bound, whatever its user has submitted."""

from __future__ import annotations

import msgspec

from carpool.core.model import Attempt, JobPhase, Outcome, Reason
from carpool.daemon.jobs.info import last_info
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.protocol.api import JobInfo, SubmitRequest

LONG = 60_000


def ended(spec: SubmitRequest, text: str, attempts: int = 1) -> JobRecord:
    past = tuple(Ended(Attempt(text, "host0", False, 0), number, number + 1, 1) for number in range(1, attempts))
    job = JobRecord(7, 1000, 1000, spec, None, 1, past)
    job.phase, job.outcome, job.reason, job.started_us = JobPhase.ENDED, Outcome.FAILED, Reason("exit", text), 500
    return job


def test_long_texts_are_kept_as_their_beginning() -> None:
    job = ended(SubmitRequest(["python", "a" * LONG, "b" * LONG], "/" + "c" * LONG, {}), "d" * LONG, attempts=100)
    row = last_info(job)
    info = msgspec.json.decode(row, type=JobInfo)
    assert info.command[0] == "python" and len(info.command) == 2 and info.command[1].startswith("aaa")
    assert info.cwd.startswith("/ccc") and info.reason is not None and info.reason.text.startswith("ddd")
    assert info.reason.text.endswith("(the rest is in the journal)")
    assert [attempt.number for attempt in info.attempts] == [*range(81, 101)]
    assert len(row) < 40_000


def test_usual_jobs_are_kept_as_they_are() -> None:
    job = ended(SubmitRequest(["python", "train.py"], "/home/ada/work", {}), "ended with code 1", attempts=3)
    info = msgspec.json.decode(last_info(job), type=JobInfo)
    assert (info.command, info.cwd) == (["python", "train.py"], "/home/ada/work")
    assert info.reason is not None and info.reason.text == "ended with code 1"
    assert [attempt.number for attempt in info.attempts] == [1, 2, 3]
