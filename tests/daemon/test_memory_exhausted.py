"""A daemon without memory refuses what it cannot do, and ends."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable

import pytest

from tests.daemon.daemon_harness import Daemon, Refused, submission

LARGE = {"X": "y" * (1 << 20)}
#: As much address space as no daemon does with: it gets no more than it has.
ADDRESSES = 32 << 20


def test_requests_are_refused_with_a_sentence_and_the_end_has_a_limit(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon().hurry("app.END_S", to=1.0).started()
    assert daemon.process is not None
    daemon.get("/v1/jobs")  # as soon as it has started
    resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    with pytest.raises(Refused) as refused:
        for _ in range(30):
            daemon.post("/v1/jobs", submission("true", env=LARGE))
    assert (refused.value.status, refused.value.code) == (503, "system_error")
    assert "memory" in refused.value.message
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) in (0, 128 + signal.SIGALRM, -signal.SIGALRM)  # how much it could still do
    assert "Traceback" not in daemon.log()
