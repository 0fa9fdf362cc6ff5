"""Tokens and where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.serve.http.auth import authorized, read_token
from carpool.serve.oip.errors import StartError


def test_a_token_is_what_its_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("0123456789abcdef\n")
    assert read_token(path) == "0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "mode", "text"),
    [
        ("0123456789abcdef", 0o640, "others may read or write the token"),
        ("short", 0o600, "needs 16 letters or more"),
        ("", 0o600, "needs 16 letters or more"),
        ("two words, and long", 0o600, "without spaces"),
        ("ä" * 20, 0o600, "cannot read the token"),
    ],
)
def test_a_token_that_is_none(tmp_path: Path, content: str, mode: int, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    with pytest.raises(StartError, match=text):
        read_token(path)


def test_a_token_whose_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read the token in .*token"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "token", "Bearer tokenx", "Bearer toke", "Bearer \udcff"]
)
def test_headers_without_the_token(header: str | None) -> None:
    assert not authorized(header, "token")


def test_the_header_with_the_token() -> None:
    assert authorized("Bearer token", "token")
