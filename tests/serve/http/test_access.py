"""Tokens and where they come from; requests that are meant for other hosts, and pages of other sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from carpool.serve.http.access import authorized, check_origin, read_token
from carpool.serve.oip.errors import StartError, WrongOrigin
from tests.serve.conftest import OPTIONS, Server, Start
from tests.serve.http.test_endpoint import ask, infer

EVIL = "http://evil.example"


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


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "token", "Bearer tokenx", "Bearer toke", "Bearer \udcff"])
def test_headers_without_the_token(header: str) -> None:
    assert not authorized({"Authorization": header}, "token")
    assert not authorized({"X-API-Key": header.replace("token", "Bearer token")}, "token")


def test_headers_with_the_token() -> None:
    assert not authorized({}, "token")
    assert authorized({"Authorization": "Bearer token", "X-API-Key": "other"}, "token")
    assert authorized({"X-API-Key": "token"}, "token")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.3.2.1:80", "[::1]", "[::1]:8000"]
)
def test_names_of_this_machine(host: str) -> None:
    check_origin([host], [])
    check_origin([host], [f"http://{host}", f"https://{host}"])


@pytest.mark.parametrize(
    "host",
    ["", "x", "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1",
     "localhost@evil.example", "[::1", "[::2]", "0.0.0.0"],
)  # fmt: skip
def test_names_of_others(host: str) -> None:
    with pytest.raises(WrongOrigin, match=r"the header Host is .*--token-file"):
        check_origin([host], [])
    with pytest.raises(WrongOrigin, match="the header Origin is"):
        check_origin(["localhost"], [f"http://{host}"])


def test_headers_that_are_missing_or_come_twice() -> None:
    with pytest.raises(WrongOrigin, match="the header Host is missing"):
        check_origin([], [])
    with pytest.raises(WrongOrigin):
        check_origin(["localhost", "evil.example"], [])
    with pytest.raises(WrongOrigin):
        check_origin(["localhost"], ["http://localhost", "null"])


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": EVIL}, {"Origin": "null"}, {"Origin": EVIL, "Host": "localhost"}]
)
def test_without_a_token_pages_of_other_sites_get_nothing(server: Server, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v2"), ("GET", "/v2/health/ready"), ("POST", "/v2/repository/index"), ("GET", "/q")):
        answer = ask(server, method, path, headers=headers)
        assert answer.status == 403 and "without a token" in answer.json["error"]
        assert "Access-Control-Allow-Origin" not in answer.headers
    answered = server.backend.answered
    assert infer(server, **headers).status == 403 and server.backend.answered == answered


def test_a_page_of_this_machine_may_ask(server: Server) -> None:
    assert infer(server, Origin="http://localhost:3000").status == 200


def test_with_a_token_names_do_not_matter(serving: Start) -> None:
    server = serving(replace(OPTIONS, token="s" * 16))
    headers = {"Host": "models.example", "Origin": EVIL}
    assert infer(server, Authorization="Bearer " + "s" * 16, **headers).status == 200
    assert infer(server, **headers).status == 401
