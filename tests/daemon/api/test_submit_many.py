"""POST /v1/submissions: all of it or nothing."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from carpool.core.events import Event
from carpool.core.model import JobPhase, Outcome
from carpool.daemon.api.context import Context
from carpool.daemon.api.submit import accept, core_spec
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.jobs.submissions import SubmissionRate
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.errors import JournalFull
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, Refused, as_nobody, refusal, submission


def jobs(*commands: str, **fields: Any) -> list[dict[str, Any]]:
    return [submission("sh", "-c", command, **fields) | {"env": {}} for command in commands]


def test_all_are_accepted_in_order_and_survive_a_kill(daemon: Daemon) -> None:
    request = {"jobs": jobs("echo $WHO", "exit 3"), "env": {"PATH": os.environ["PATH"], "WHO": "me"}}
    request["jobs"][1]["retries"] = 1
    first, second = daemon.post("/v1/submissions", request)["ids"]
    daemon.restarted()
    assert daemon.wait(first)["outcome"] == "succeeded"
    assert daemon.output(first) == "me\n"
    assert (daemon.wait(second)["exit_code"], daemon.wait(second)["attempt"]) == (3, 2)


def test_one_that_is_wrong_refuses_all_and_the_queue_goes_on(daemon: Daemon) -> None:
    before = daemon.python("pass")
    many = [*jobs("true", "true"), *jobs("true", name="bad", device="gpu9")]
    with pytest.raises(Refused, match=r"job 3 of 3 \(bad\): there is no device 'gpu9'"):
        daemon.post("/v1/submissions", {"jobs": many})
    with pytest.raises(Refused, match="1 to 1000 jobs, not 0"):
        daemon.post("/v1/submissions", {"jobs": []})
    with pytest.raises(Refused, match="1 to 1000 jobs, not 1001"):
        daemon.post("/v1/submissions", {"jobs": jobs(*["true"] * 1001)})
    assert daemon.wait(before)["outcome"] == "succeeded"
    after = daemon.python("pass")
    assert [job["id"] for job in daemon.get("/v1/jobs")["jobs"]] == [before, after]


def test_jobs_of_one_request_follow_each_other(daemon: Daemon) -> None:
    env = {"PATH": os.environ["PATH"]}
    first, second = daemon.post("/v1/submissions", {"jobs": jobs("true", "true"), "env": env, "follows": [[], [0]]})[
        "ids"
    ]
    assert daemon.show(second)["after"] == [first]
    assert daemon.wait(second)["started_us"] >= daemon.wait(first)["ended_us"]
    for follows in ([[0], []], [[], [1]], [[]], [[], [-1]]):
        with pytest.raises(Refused, match="follow"):
            daemon.post("/v1/submissions", {"jobs": jobs("true", "true"), "follows": follows})


def test_who_follows_one_that_has_failed_meanwhile_leaves_that_to_the_core() -> None:
    """The core refuses a job at once, before those that follow it are told to it."""
    table = JobTable()
    for number, outcome in ((1, Outcome.REFUSED), (2, Outcome.SUCCEEDED), (3, None)):
        job = table.live[number] = JobRecord(number, 0, 0, SubmitRequest(argv=["x"], cwd="/", env={}), None, 0)
        if outcome is not None:
            job.outcome, job.phase = outcome, JobPhase.ENDED
            table.end(job, msgspec.Raw(b"{}"))
    follower = JobRecord(4, 0, 0, SubmitRequest(argv=["x"], cwd="/", env={}, after=[1, 2, 3]), None, 0)
    context = cast(Context, SimpleNamespace(jobs=table, limits=SimpleNamespace(retry_pause_us=0)))
    assert core_spec(context, follower).after == (1, 3)


class Promise:
    """What `accept` needs of the daemon, with a journal that answers when it is told to."""

    def __init__(self) -> None:
        self.jobs, self.posted = JobTable(), list[Event]()
        self.recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        store = SimpleNamespace(submitted=lambda jobs: self.recorded)
        self.context = cast(
            Context,
            SimpleNamespace(
                jobs=self.jobs, limits=UserLimits(), submission_rate=SubmissionRate(10, 1), store=store, post=self.post
            ),
        )
        spec = SubmitRequest(argv=["true"], cwd="/", env={})
        self.records = [JobRecord(self.jobs.new_id(), 1000, 1000, spec, None, 0) for _ in range(2)]

    def post(self, event: Event) -> None:
        self.posted.append(event)

    def known(self) -> tuple[list[int], int]:
        """Jobs that are live, and how many count for their user."""
        assert len(self.posted) == len(self.jobs.live)
        return sorted(self.jobs.live), self.jobs.submitted.of(1000)[0]


async def test_accepted_is_accepted_even_if_nobody_waits_any_more() -> None:
    promise = Promise()
    waiting = asyncio.ensure_future(accept(promise.context, promise.records))
    await asyncio.sleep(0)
    assert promise.known() == ([], 2)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not promise.recorded.done(), "the journal's answer is not the client's to cancel"
    promise.recorded.set_result(None)
    await asyncio.sleep(0)
    assert promise.known() == ([1, 2], 2)


@pytest.mark.parametrize("waits", [True, False])
async def test_what_cannot_be_recorded_is_taken_back(waits: bool) -> None:
    promise = Promise()
    answer = accept(promise.context, promise.records)
    if not waits:
        answer.cancel()
    promise.recorded.set_exception(JournalFull("disk_full", "full", ""))
    with pytest.raises(JournalFull if waits else asyncio.CancelledError):
        await answer
    await asyncio.sleep(0)
    assert promise.known() == ([], 0) and not promise.jobs.was_given(1)


@pytest.mark.parametrize(
    ("arrays", "changes"),
    [
        ([[1, 0]], {"index": 0}),
        ([[0], [0]], {"index": 0}),
        ([[0, 2]], {"index": 0}),
        ([[]], {"index": 0}),
        ([[0, 1]], {"index": 0}),  # twice
        ([[0, 1]], {}),
        ([], {"array_limit": 2}),
        ([], {"array": 1}),
    ],
)
def test_arrays_that_make_no_sense(daemon: Daemon, arrays: list[list[int]], changes: dict[str, int]) -> None:
    job = {"argv": ["true"], "cwd": "/", "env": {}} | changes
    refused = refusal(daemon.post, "/v1/submissions", {"jobs": [job, job], "arrays": arrays})
    assert refused.status == 400
    assert refused.code in ("bad_arrays", "bad_array")


# POST /v1/retries: only of one's own ended jobs, and all of them or none


def body(*jobs: int) -> dict[str, object]:
    return {"jobs": list(jobs), "env": {"PATH": os.environ["PATH"]}}


def test_nobody_runs_the_jobs_of_others_not_even_an_administrator(daemon: Daemon) -> None:
    mine = daemon.submit("true", ended=True)
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/retries', {body(mine)}))") == "not_owner"
    theirs = as_nobody(daemon, "daemon.wait(daemon.submit('true'))['id']")
    answer = daemon.post("/v1/retries", body(mine, theirs))
    assert (answer["retried"], [left["job"] for left in answer["left"]]) == ([mine], [theirs])
    assert answer["left"][0]["error"]["code"] == "not_owner"


def test_what_is_refused_makes_no_job(daemon: Daemon) -> None:
    ended, live = daemon.submit("true", ended=True), daemon.submit("sleep", "600")
    for jobs, code in (([99, 98], "unknown_job"), ([live], "not_ended"), ([], "bad_count")):
        assert refusal(daemon.post, "/v1/retries", body(*jobs)).code == code
    with pytest.raises(Refused) as refused:
        daemon.submit("true", retry_of=ended)
    assert refused.value.code == "bad_array"
    first, second = (daemon.submit("true", ended=True) for _ in range(2))
    assert (first, second) == (live + 1, live + 2), "what was refused has taken no numbers"
    assert daemon.post("/v1/retries", body(second, first, second))["ids"] == [second + 2, second + 1]


def test_elements_of_arrays_are_refused_by_their_names(daemon: Daemon) -> None:
    element = submission("true", index=4, own_variables=["TOKEN"])
    (job,) = daemon.post("/v1/submissions", {"jobs": [element], "arrays": [[0]]})["ids"]
    daemon.wait(job)
    with pytest.raises(Refused, match=f"job {job}_4 was given the variables TOKEN"):
        daemon.post("/v1/retries", body(job))


def test_the_new_job_is_what_was_submitted_and_starts_at_once(daemon: Daemon) -> None:
    options = {"name": "whole", "weight": 7, "time_us": 60_000_000, "hold": True, "persistent_bytes": 1 << 20}
    job = daemon.submit("false", **options)
    daemon.post(f"/v1/jobs/{job}/release")
    assert daemon.wait(job)["outcome"] == "failed"
    (again,) = daemon.post("/v1/retries", body(job))["ids"]
    shown = daemon.wait(again)
    assert (shown["name"], shown["weight"], shown["time_us"], shown["retry_of"]) == ("whole", 7, 60_000_000, job)
    assert (shown["outcome"], shown["estimate_source"], shown["held_by"]) == ("failed", "hint", None)


def test_a_job_is_tried_again_once_however_many_ask_at_the_same_time(daemon: Daemon) -> None:
    job = daemon.submit("false", ended=True)

    def ask(_: int) -> str:
        try:
            daemon.post("/v1/retries", body(job))
        except Refused as refused:
            return str(refused.code)
        return "accepted"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert sorted(answers) == ["accepted", *["retried"] * 7]


def test_the_order_of_ids_is_not_that_of_what_waits(daemon: Daemon) -> None:
    first, second = daemon.submit("true", hold=True), daemon.submit("false", hold=True)
    daemon.request("PATCH", f"/v1/jobs/{first}", {"after": [second]})
    for job in (first, second):
        daemon.post(f"/v1/jobs/{job}/release")
    assert daemon.wait(first)["outcome"] == "refused"
    answer = daemon.post("/v1/retries", body(first, second))
    again = dict(zip(answer["retried"], answer["ids"], strict=True))
    assert daemon.show(again[first])["after"] == [again[second]]
    assert daemon.wait(again[first])["outcome"] == "refused", "the second one has failed again"
    answer = daemon.post("/v1/retries", body(again[second], again[first]))
    assert daemon.show(answer["ids"][1])["after"] == [answer["ids"][0]]


def test_workers_and_foreground_jobs_are_left_out(daemon: Daemon) -> None:
    worker = daemon.submit("false", service=100, ended=True)
    assert refusal(daemon.post, "/v1/retries", body(worker)).code == "not_startable"
