"""The page of a real daemon: on its socket, and on TCP."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable

import pytest

from carpool.daemon.api.metrics import MOST_CONNECTIONS
from tests.daemon.daemon_harness import Daemon, until
from tests.metrics_page import values
from tests.ports import free_port

Make = Callable[..., Daemon]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def asked(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def test_what_jobs_do_is_counted(daemon: Daemon) -> None:
    memory = "grow:p:4194304", "grow:e:8388608"
    job = daemon.fake("attach", *memory, "note:switch_us:300", "rounds:5", "say:done", "pause")
    daemon.until_line(job, "done")
    until(lambda: values(daemon.get("/metrics"))[("carpool_turns_total", "boundary", "host0")] == 5)
    found = values(daemon.get("/metrics"))
    (lane,) = daemon.get("/v1/devices")["devices"][0]["lanes"]
    assert found[("carpool_device_memory_bytes", "host0", "lanes")] == lane["size_bytes"] >= 8 << 20
    assert found[("carpool_device_memory_bytes", "host0", "persistent")] >= 4 << 20
    assert found[("carpool_device_capacity_bytes", "host0")] == 256 << 20
    assert found[("carpool_memory_requests_total", "granted", "host0")] == 2
    assert found[("carpool_turn_wait_seconds_count", "host0")] == 5
    assert found[("carpool_turn_handover_seconds_count", "host0")] == 5
    assert found[("carpool_jobs", "running")] == 1 and found[("carpool_jobs_submitted_total",)] == 1
    assert found[("carpool_api_requests_total", "POST", "/v1/jobs", "201")] == 1
    assert 0 <= found[("carpool_journal_lag_seconds",)] < 30
    until(lambda: values(daemon.get("/metrics"))[("carpool_loop_lag_seconds_count",)] > 0)
    daemon.cancel(job)
    daemon.wait(job)
    assert values(daemon.get("/metrics"))[("carpool_jobs_ended_total", "cancelled")] == 1


def test_why_jobs_wait(daemon: Daemon) -> None:
    held = daemon.python("pass", hold=True)
    after = daemon.python("pass", after=[held])
    found = values(daemon.get("/metrics"))
    assert found[("carpool_jobs", "queued")] == 2
    assert found[("carpool_jobs_waiting", "held")] == 1 and found[("carpool_jobs_waiting", "after")] == 1, after


def test_a_page_names_no_job_and_what_clients_make_up_is_no_label(daemon: Daemon) -> None:
    job = daemon.python("pass", name="somebodys-name")
    daemon.wait(job)
    for path in ("/v1/jobs/12345", "/v1/nothing", "/v1/jobs/secret"):
        with pytest.raises(Exception, match="404"):
            daemon.get(path)
    page = daemon.get("/metrics")
    assert b"somebodys-name" not in page and b"12345" not in page and b"nothing" not in page and b"secret" not in page
    found = values(page)
    assert found[("carpool_api_requests_total", "GET", "/v1/jobs/{id}", "404")] == 2
    assert found[("carpool_api_requests_total", "any", "unknown", "404")] == 1


def test_on_tcp_there_is_this_page_and_nothing_else(make_daemon: Make) -> None:
    port = free_port()
    daemon = make_daemon("--device", "host:64MiB", "--metrics", f"127.0.0.1:{port}").started()
    answer = asked(port)
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain")
    assert values(answer.read())[("carpool_device_capacity_bytes", "host0")] == 64 << 20
    other = asked(port, Accept=OPENMETRICS)
    assert other.headers["Content-Type"].startswith("application/openmetrics-text")
    assert other.read().endswith(b"# EOF\n")
    for path in ("/", "/v1/jobs", "/v1/version", "/openapi.json"):
        assert asked(port, path).status == 404
    assert asked(port, method="POST").status == 405
    assert not daemon.get("/v1/jobs")["jobs"]


def test_half_requests_on_tcp_take_no_more_than_their_share_and_keep_no_reader_out(make_daemon: Make) -> None:
    port = free_port()
    daemon = make_daemon("--device", "host:64MiB", "--metrics", f"127.0.0.1:{port}").started()
    present = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_CONNECTIONS)]
    for each in present[1:]:
        each.sendall(b"GET /metrics HTTP/1.1\r\nHo")
    assert asked(port).status == 200
    present[0].settimeout(30)
    assert present[0].recv(1) == b"", "the oldest has gone"
    assert asked(port).status == 200 and daemon.get("/metrics")
    for each in present:
        each.close()


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("9467", "bad_address", "is no address with a port, as in 127.0.0.1:9467"),
        ("localhost:9467", "bad_address", "'localhost' is no IP address; for this machine alone: 127.0.0.1:9467"),
        ("127.0.0.1:0", "bad_address", "is no address with a port"),
        ("192.0.2.1:9467", "metrics_address", "Cannot assign requested address"),
    ],
)
def test_an_address_that_cannot_be_served_is_refused(make_daemon: Make, address: str, code: str, text: str) -> None:
    error = make_daemon("--metrics", address).failed()
    assert error["code"] == code and text in error["message"]


def test_an_address_that_is_taken_is_refused(make_daemon: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = make_daemon("--metrics", f"127.0.0.1:{taken.getsockname()[1]}").failed()
    assert error["code"] == "metrics_address" and "Address already in use" in error["message"]
    assert "choose another one" in error["hint"]
