"""POST /v1/retries: only of one's own ended jobs, and all of them or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon.daemon_harness import Daemon, Refused, as_nobody, submission

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")


def body(*jobs: int) -> dict[str, object]:
    return {"jobs": list(jobs), "env": {"PATH": os.environ["PATH"]}}


@needs_root
def test_nobody_runs_the_jobs_of_others_not_even_an_administrator(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    daemon.home.parent.chmod(0o711)
    mine = daemon.submit("true")
    daemon.wait(mine)
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/retries', {body(mine)}))") == "not_owner"
    theirs = as_nobody(daemon, "daemon.wait(daemon.submit('true'))['id']")
    answer = daemon.post("/v1/retries", body(mine, theirs))
    assert (answer["retried"], [left["job"] for left in answer["left"]]) == ([mine], [theirs])
    assert answer["left"][0]["error"]["code"] == "not_owner"


def test_what_is_refused_makes_no_job(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    ended, live = daemon.submit("true"), daemon.submit("sleep", "600")
    daemon.wait(ended)
    for jobs, code in (([99, 98], "unknown_job"), ([live], "not_ended"), ([], "bad_count")):
        with pytest.raises(Refused) as refused:
            daemon.post("/v1/retries", body(*jobs))
        assert refused.value.code == code
    with pytest.raises(Refused) as refused:
        daemon.submit("true", retry_of=ended)
    assert refused.value.code == "bad_array"
    first, second = (daemon.submit("true") for _ in range(2))
    assert (first, second) == (live + 1, live + 2), "what was refused has taken no numbers"
    for job in (first, second):
        daemon.wait(job)
    assert daemon.post("/v1/retries", body(second, first, second))["ids"] == [second + 2, second + 1]


def test_elements_of_arrays_are_refused_by_their_names(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    element = submission("true", index=4, own_variables=["TOKEN"])
    (job,) = daemon.post("/v1/submissions", {"jobs": [element], "arrays": [[0]]})["ids"]
    daemon.wait(job)
    with pytest.raises(Refused, match=f"job {job}_4 was given the variables TOKEN"):
        daemon.post("/v1/retries", body(job))


def test_the_new_job_is_what_was_submitted_and_starts_at_once(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    options = {"name": "whole", "weight": 7, "time_us": 60_000_000, "hold": True, "persistent_bytes": 1 << 20}
    job = daemon.submit("false", **options)
    daemon.post(f"/v1/jobs/{job}/release")
    assert daemon.wait(job)["outcome"] == "failed"
    (again,) = daemon.post("/v1/retries", body(job))["ids"]
    shown = daemon.wait(again)
    assert (shown["name"], shown["weight"], shown["time_us"], shown["retry_of"]) == ("whole", 7, 60_000_000, job)
    assert (shown["outcome"], shown["estimate_source"], shown["held_by"]) == ("failed", "hint", None)


def test_a_job_is_tried_again_once_however_many_ask_at_the_same_time(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    job = daemon.submit("false")
    daemon.wait(job)

    def ask(_: int) -> str:
        try:
            daemon.post("/v1/retries", body(job))
        except Refused as refused:
            return str(refused.code)
        return "accepted"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert sorted(answers) == ["accepted", *["retried"] * 7]


def test_the_order_of_ids_is_not_that_of_what_waits(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
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


def test_workers_and_foreground_jobs_are_left_out(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    worker = daemon.submit("false", service=100)
    daemon.wait(worker)
    with pytest.raises(Refused) as refused:
        daemon.post("/v1/retries", body(worker))
    assert refused.value.code == "not_startable"
