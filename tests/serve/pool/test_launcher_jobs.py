"""What a front asks of a job, while the daemon is away or refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import ErrorInfo
from carpool.protocol.unix_http import ApiError, ClientError
from carpool.serve.pool.launcher import DaemonJob, DaemonQueries


class Refusing(DaemonQueries):
    """``errors``: of the next answers."""

    def __init__(self, *errors: ClientError) -> None:
        super().__init__(Path(), poll_s=0)
        self.errors = list(errors)

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        if self.errors:
            raise self.errors.pop(0)


AWAY = ClientError("away", "the daemon is away")


@pytest.mark.parametrize("last", [(), (ApiError(409, ErrorInfo("not_paused", "job 1 is not paused")),)])
async def test_a_job_goes_on_once_the_daemon_is_back(last: tuple[ClientError, ...]) -> None:
    daemon = Refusing(AWAY, ApiError(503, ErrorInfo("stopping", "the daemon is stopping")), *last)
    await DaemonJob(daemon, 1).resume()
    assert not daemon.errors


async def test_a_pause_is_asked_for_once() -> None:
    daemon = Refusing(AWAY, AWAY)
    await DaemonJob(daemon, 1).pause()
    assert len(daemon.errors) == 1


async def test_a_daemon_is_reachable_if_it_answers() -> None:
    job = DaemonJob(Refusing(AWAY, ApiError(404, ErrorInfo("unknown_job", "there is no job 1"))), 1)
    assert [await job.is_reachable() for _ in range(3)] == [False, True, True]
