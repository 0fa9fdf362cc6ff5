"""Ended jobs are removed on request: of their owner and of administrators, and of nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from daemon_harness import Daemon, Refused, as_nobody

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
    assert daemon.show(job)["outcome"] == "succeeded"


def test_all_of_a_request_or_nothing(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().started()
    job = daemon.submit("true")
    daemon.wait(job)
    daemon.submit("true")
    for jobs, code in (([job, 99], "unknown_job"), ([job] * 1001, "too_many_jobs")):
        with pytest.raises(Refused) as refused:
            daemon.post("/v1/clean", {"jobs": jobs})
        assert refused.value.code == code
    assert daemon.show(job)["outcome"] == "succeeded"
