"""Ended jobs are removed on request: of their owner and of administrators, and of nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.daemon.daemon_harness import Daemon, Refused, as_nobody

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")


@needs_root
def test_others_jobs_stay(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    daemon.home.parent.chmod(0o711)
    job = daemon.submit("true")
    daemon.wait(job)
    daemon.submit("true")
    body = {"jobs": [job]}
    assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/clean', {body}))") == "not_owner"
    own = "daemon.wait(daemon.submit('true'))['id']"
    range_of = f"daemon.post('/v1/clean', {{'jobs': [{job}, {own}]}})['kept'][0]"
    assert as_nobody(daemon, range_of) == job, "of others' jobs in a range the answer says that they stay"
    assert daemon.show(job)["outcome"] == "succeeded"


def test_jobs_that_are_gone_do_not_keep_the_others_and_live_ones_do(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    job = daemon.submit("true")
    daemon.wait(job)
    live = daemon.submit("sleep", "600")
    assert daemon.post("/v1/clean", {"jobs": [99, job]})["kept"][0] == 99
    for jobs, code in (([99], "unknown_job"), ([live, 99], "not_ended"), ([live] * 1001, "too_many_jobs")):
        with pytest.raises(Refused) as refused:
            daemon.post("/v1/clean", {"jobs": jobs})
        assert refused.value.code == code
