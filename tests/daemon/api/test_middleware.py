"""Requests that fail: the line in the daemon's log counts as one that the caller has caused."""

from __future__ import annotations

import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from carpool.daemon.api import context, middleware
from carpool.daemon.api.context import Caller


async def test_a_failure_is_logged_as_caused_by_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    request = make_mocked_request("GET", "/v1/limits", app=web.Application())
    request[context._CALLER] = Caller(1234, 1234)

    async def handler(request: web.Request) -> web.StreamResponse:
        raise AssertionError

    with caplog.at_level(logging.ERROR):
        assert (await middleware.guard(request, handler)).status == 500
    assert [getattr(record, "uid", None) for record in caplog.records] == [1234]
