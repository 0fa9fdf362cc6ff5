"""What the server answers to whom: real requests to the real process."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from carpool.dashboard.guard import POLICY
from carpool.dashboard.tabs import MOST_TABS, NO_TOKEN, TOO_MANY
from tests.dashboard.conftest import Page
from tests.live import LiveDaemon

EVIL = "http://evil.example"


def test_the_page_comes_without_a_token_and_nothing_else_does(page: Page) -> None:
    assert page.ask("GET", "/", token="").status == 200
    for path in ("/api/daemon/v1/jobs", "/api/timeline", "/api/what-if", "/api/nothing", "/nothing"):
        for token in ("", "x" * 43, page.link):
            answer = page.ask("GET", path, token=token)
            assert (answer.status, answer.json()["error"]["code"]) == (401, "no_token"), path
    assert page.ask("GET", "/api/daemon/v1/jobs").status == 200


def test_a_link_is_followed_once(page: Page) -> None:
    again = page.ask("POST", "/api/session", {"link": page.link}, token="")
    assert again.status == 403 and "press Enter" in again.json()["error"]["hint"]
    for body in ({"link": ""}, {"link": "x", "more": 1}, {}, [], {"link": 5}):
        assert page.ask("POST", "/api/session", body, token="").status in (400, 403)


def test_names_that_point_here_are_not_this_server(page: Page) -> None:
    port = urlsplit(page.url).port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{port}",
        "[x",
    ):
        answer = page.ask("GET", "/", Host=host)
        assert (answer.status, answer.json()["error"]["code"]) == (403, "wrong_host"), host
    for host in (f"localhost:{port}", f"[::1]:{port}"):
        assert page.ask("GET", "/", Host=host).status == 200


def test_pages_of_other_sites_and_ports_get_nothing(page: Page) -> None:
    for origin in (EVIL, "null", "http://127.0.0.1:1", "https://127.0.0.1", page.url.replace("http", "ws")):
        answer = page.ask("POST", "/api/daemon/v1/jobs/1/cancel", Origin=origin)
        assert (answer.status, answer.json()["error"]["code"]) == (403, "wrong_origin"), origin
    assert page.ask("GET", "/api/daemon/v1/version", Origin=page.url).status == 200


def test_every_answer_has_the_policy_and_no_cookie(page: Page) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/static/none"),
        ("GET", "/x"),
        ("DELETE", "/"),
        ("GET", "/api/daemon/v1/jobs/99"),
    ):
        answer = page.ask(method, path)
        assert answer.headers["Content-Security-Policy"] == POLICY, path
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Set-Cookie"] is None
        assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
    assert "unsafe" not in POLICY


def test_files_beside_the_page_are_out_of_reach(page: Page) -> None:
    for path in (
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "/etc/passwd",
        "vendor/../../server.py",
        ".",
        "%00",
    ):
        assert page.ask("GET", f"/static/{path}").status in (403, 404), path


def test_large_requests_are_refused(page: Page) -> None:
    answer = page.ask("PUT", "/api/daemon/v1/policy", {"name": "x" * (1 << 20)})
    assert (answer.status, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_daemons_refusal_comes_through(page: Page) -> None:
    answer = page.ask("PUT", "/api/daemon/v1/policy", {"name": "nothing"})
    assert answer.status == 400 and "nothing" in answer.json()["error"]["message"]
    assert page.ask("GET", "/api/daemon/v1/jobs/999").json()["error"]["code"] == "unknown_job"


async def _hello(page: Page, hello: Any, **headers: str) -> aiohttp.WSMessage | int:
    """The first message, or the code with which the connection was closed; a status where there is none."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(
                f"{page.url}/ws", headers=headers, timeout=aiohttp.ClientWSTimeout(60)
            ) as page_socket:
                await page_socket.send_json(hello)
                message = await page_socket.receive()
                return page_socket.close_code or 0 if message.type is aiohttp.WSMsgType.CLOSE else message
        except aiohttp.WSServerHandshakeError as error:
            return error.status


@pytest.mark.parametrize("hello", [{"token": ""}, {"token": "x"}, {}, []], ids=str)
async def test_a_socket_without_a_token_is_closed(page: Page, hello: Any) -> None:
    assert await _hello(page, hello) == NO_TOKEN


async def test_a_socket_of_another_site_is_refused(page: Page) -> None:
    assert await _hello(page, {"token": page.token}, Origin=EVIL) == 403


async def test_a_socket_with_a_token_tells_the_state(page: Page) -> None:
    message = await _hello(page, {"token": page.token}, Origin=page.url)
    assert isinstance(message, aiohttp.WSMessage)
    state = message.json()
    assert state["kind"] == "state" and state["connected"] and state["user"]["uid"] == os.geteuid()
    assert [device["id"] for device in state["devices"]["devices"]] == ["host0"] and state["policy"]["name"]


async def test_the_number_of_open_pages_is_limited(page: Page) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        sockets = []
        for _ in range(MOST_TABS):
            sockets.append(await session.ws_connect(f"{page.url}/ws"))
            await sockets[-1].send_json({"token": page.token})
        firsts = await asyncio.gather(*(one.receive() for one in sockets))
        assert {message.type for message in firsts} == {aiohttp.WSMsgType.TEXT}
        assert await _hello(page, {"token": page.token}) == TOO_MANY
        await asyncio.gather(*(one.close() for one in sockets))


def test_a_socket_in_the_file_system_is_its_users_own(live: LiveDaemon, place: Path) -> None:
    path = place / "page.sock"
    page = Page(live.home, "--socket", str(path))
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert page.said["ssh"].startswith(f"ssh -N -L 8080:{path} ")
        connection = http.client.HTTPConnection("127.0.0.1:9999")
        connection.sock = _connected(path)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        page.close()
    assert not path.exists()


def _connected(path: Path) -> Any:
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(path))
    return found


@pytest.mark.parametrize("kind", ["used", "file", "open"])
def test_bad_places_are_explained(live: LiveDaemon, place: Path, kind: str) -> None:
    folder = place / kind
    folder.mkdir(mode=0o700)
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "used":
            listener.bind(str(path))
            listener.listen()
        elif kind == "file":
            path.write_text("mine")
        else:
            folder.chmod(0o777)
        command = [sys.executable, "-m", "carpool.cli", "dashboard", "--home", str(live.home), "--socket", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1 and str(folder) in result.stderr and "choose" in result.stderr, result.stderr
    assert kind != "file" or path.read_text() == "mine"
