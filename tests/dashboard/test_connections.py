"""Who connects and says little, too much or nothing: real connections to the real process."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from carpool.dashboard.connections import MOST
from carpool.dashboard.guard import POLICY
from carpool.dashboard.tabs import NO_TOKEN
from tests.dashboard.conftest import PATIENCE_S, Page
from tests.dashboard.test_feed import is_state, listening, submit
from tests.live import LiveDaemon

NOBODY = 65534


def connected(page: Page) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", urlsplit(page.url).port or 0))
    found.settimeout(60)
    return found


def received(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "request_", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n"], ids=["line", "header"]
)
def test_what_is_no_http_gets_the_policy_too(page: Page, request_: bytes) -> None:
    with connected(page) as connection:
        connection.sendall(request_)
        answer = received(connection)
    assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400")), answer
    assert POLICY.encode() in answer and b'"code":"bad_http"' in answer and b"text/html" not in answer


@pytest.fixture
def crowd(page: Page) -> Iterator[list[socket.socket]]:
    """As many connections as are allowed."""
    with ExitStack() as stack:
        connections = [stack.enter_context(connected(page)) for _ in range(MOST)]
        yield connections


def test_connections_that_say_nothing_keep_nobody_out(page: Page, crowd: list[socket.socket]) -> None:
    with connected(page) as one_more:
        one_more.sendall(f"GET /x HTTP/1.0\r\nHost: {urlsplit(page.url).netloc}\r\n\r\n".encode())
        assert received(one_more).startswith(b"HTTP/1.0 401")
    with suppress(ConnectionError):
        assert received(crowd[0]) == b"", "the oldest has gone"


async def test_sockets_without_a_token_keep_nobody_out_and_a_page_stays(page: Page) -> None:
    async with listening(page) as quick, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(MOST + 1):
            await session.ws_connect(f"{page.url}/ws")
        assert (await asyncio.to_thread(page.ask, "GET", "/api/daemon/v1/version")).status == 200
        await quick.until(is_state)


@pytest.fixture(scope="module")
def hasty(live: LiveDaemon) -> Iterator[Page]:
    """It waits for a token for a moment only."""
    page = Page(live.home, patience_ms=300)
    yield page
    page.close()


async def test_a_socket_that_says_nothing_is_closed(hasty: Page) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{hasty.url}/ws") as page_socket:
        async with asyncio.timeout(PATIENCE_S):
            await page_socket.receive()
        assert page_socket.close_code == NO_TOKEN


async def test_pings_are_no_token(hasty: Page) -> None:
    """Each begins the patience of aiohttp anew, not that of the page."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{hasty.url}/ws") as page_socket:
        receiving = asyncio.create_task(page_socket.receive())
        async with asyncio.timeout(PATIENCE_S):
            while not (await asyncio.wait([receiving], timeout=0.05))[0]:
                await page_socket.ping()
        assert page_socket.close_code == NO_TOKEN


async def test_pages_of_other_ports_on_a_socket_are_strangers(page: Page) -> None:
    """With `ssh -L` any port may be ours, but then it is the one that was asked."""
    host = urlsplit(page.url).netloc
    assert page.ask("GET", "/", Origin=f"http://localhost:{urlsplit(page.url).port}").status == 403
    for bad in (f"a@{host}", f"{host}/x", f"{host}#", f" {host}:1"):
        assert page.ask("GET", "/", Host=bad).status in (400, 403), bad


@pytest.mark.nightly(
    "ten seconds of a page that does not read",
    stays="tests/dashboard/test_feed.py::test_a_page_that_does_not_read_is_brought_up_to_date_at_once",
)
async def test_a_page_that_never_reads_costs_a_few_states_only(live: LiveDaemon, page: Page) -> None:
    process = psutil.Process(page.process.pid)
    async with listening(page) as quick:
        await quick.until(is_state)
        asking = socket.create_connection(("127.0.0.1", urlsplit(page.url).port or 0))
        with asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asking.sendall(_upgrade(page))
            before = process.memory_info().rss
            for _ in range(10):
                jobs = [submit(live, "n" * 100, hold=True) for _ in range(20)]
                await quick.until(
                    lambda message, last=jobs[-1]: any(one["id"] == last for one in message.get("jobs", []))
                )
                for job in jobs:
                    live.client.cancel(job)
            assert process.memory_info().rss - before < 30 << 20


def _upgrade(page: Page) -> bytes:
    """A WebSocket's beginning, and the token in a masked frame (of a zero mask)."""
    host, hello = urlsplit(page.url).netloc, f'{{"token": "{page.token}"}}'.encode()
    head = f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    return (head + key).encode() + bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs root, and setpriv")
def test_another_user_gets_nothing(live: LiveDaemon, page: Page) -> None:
    """Who can connect has no token, and cannot read the process."""
    program = (
        "import os, sys, urllib.request, urllib.error\n"
        "assert os.geteuid() != 0\n"
        "for path in ('/api/daemon/v1/jobs', '/api/timeline'):\n"
        "    try: urllib.request.urlopen(sys.argv[1] + path)\n"
        "    except urllib.error.HTTPError as error: assert error.code == 401, error\n"
        "    else: sys.exit('answered')\n"
        "for path in sys.argv[2:]:\n"
        "    try: open(path, 'rb').read(); sys.exit(path)\n"
        "    except PermissionError: pass\n"
    )
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    paths = [f"/proc/{page.process.pid}/environ", f"/proc/{page.process.pid}/mem"]
    command = [*user, "/usr/bin/python3", "-c", program, page.url, *paths]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/", env={})
    assert result.returncode == 0, result.stderr
    assert page.link not in " ".join(psutil.Process(page.process.pid).cmdline())
