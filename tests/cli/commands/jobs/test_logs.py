"""The output of a job on a terminal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.cli.commands.jobs.logs import visible_pieces
from tests.cli.rendered import run
from tests.cli.standin import Answer, StandIn, job

WRITTEN = "plain\ttab\n\x1b[31mred\x1b]0;title\x07\x9b2J\x00é漢\u202e\r\n 10%\r 20%\n".encode() + b"\xff end"
SHOWN = "plain\ttab\n\\x1b[31mred\\x1b]0;title\\x07\\x9b2J\\x00é漢\\u202e\n 10%\n 20%\n\N{REPLACEMENT CHARACTER} end"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_characters_and_ends_of_lines_may_lie_in_two_pieces(size: int) -> None:
    pieces = [WRITTEN[at : at + size] for at in range(0, len(WRITTEN), size)]
    assert "".join(visible_pieces(pieces)) == SHOWN


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_a_terminal_is_told_nothing_but_lines_and_tabs(pieces: list[bytes]) -> None:
    text = "".join(visible_pieces(pieces))
    assert all(character.isprintable() or character in "\n\t" for character in text)


def test_only_a_terminal_is_spared_and_raw_spares_nothing(standin: StandIn) -> None:
    standin.reactions["GET /v1/jobs/1"] = Answer(msgspec.json.encode(job(1)))
    encoded = WRITTEN[: -len(b"\xff end")]
    standin.reactions["GET /v1/jobs/1/logs"] = Answer(encoded)
    assert run(standin, ("logs", "1"), {}, terminal=True) == SHOWN.removesuffix("\N{REPLACEMENT CHARACTER} end")
    for arguments, terminal in ((("logs", "1"), False), (("logs", "1", "--raw"), True)):
        assert run(standin, arguments, {}, terminal).encode() == encoded
