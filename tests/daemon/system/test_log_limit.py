"""Lines of the log that users cause."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterator

import pytest

from carpool.daemon.system.log_limit import LinesPerUser, caused_by
from tests.daemon.cuda_rig import until

WINDOW_S = 0.05
log = logging.getLogger("carpool.daemon.test")
Written = Callable[[], list[str]]


@pytest.fixture
def written() -> Iterator[Written]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.addFilter(LinesPerUser(3, WINDOW_S))
    logging.getLogger("carpool").addHandler(handler)
    yield lambda: text.getvalue().splitlines()
    logging.getLogger("carpool").removeHandler(handler)


def cause(uid: int | None, count: int) -> None:
    for number in range(count):
        log.warning("line %d of %s", number, uid, extra=caused_by(uid))


async def test_one_line_says_how_many_were_left_out(written: Written) -> None:
    cause(7, 100)
    assert written() == ["line 0 of 7", "line 1 of 7", "line 2 of 7"]
    await until(lambda: len(written()) > 3)
    cause(7, 1)
    assert written()[3:] == ["uid 7 caused 100 lines in 0 s: 97 of them were left out here", "line 0 of 7"]


async def test_a_user_takes_no_lines_from_others_and_not_from_the_daemon(written: Written) -> None:
    cause(7, 100)
    cause(8, 2)
    cause(None, 5)
    log.warning("the daemon's own")
    assert written()[3:] == [
        *("line 0 of 8", "line 1 of 8"),
        *(f"line {number} of None" for number in range(5)),
        "the daemon's own",
    ]


async def test_nothing_is_said_where_nothing_was_left_out(written: Written) -> None:
    cause(7, 3)
    await asyncio.sleep(2 * WINDOW_S)  # longer than the window is open
    assert len(written()) == 3
