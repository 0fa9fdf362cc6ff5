"""The page of a real daemon: on its socket, and on TCP."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carpool.daemon.api.metrics import MOST_CONNECTIONS
from tests.daemon.daemon_harness import Daemon, Make, until
from tests.metrics_page import values
from tests.ports import free_port

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def scraped(make_daemon: Make) -> tuple[Daemon, int]:
    """A daemon with its page on TCP, and the port."""
    port = free_port()
    return make_daemon("--device", "host:64MiB", "--metrics", f"127.0.0.1:{port}").started(), port


def asked(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def test_what_jobs_do_is_counted(daemon: Daemon) -> None:
    memory = "grow:p:4194304", "grow:e:8388608"
    job = daemon.fake("attach", *memory, "note:switch_us:300", "rounds:5", "say:done", "pause", line="done")
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
    daemon.cancelled(job)
    assert values(daemon.get("/metrics"))[("carpool_jobs_ended_total", "cancelled")] == 1


def test_why_jobs_wait(daemon: Daemon) -> None:
    held = daemon.python("pass", hold=True)
    after = daemon.python("pass", after=[held])
    found = values(daemon.get("/metrics"))
    assert found[("carpool_jobs", "queued")] == 2
    assert found[("carpool_jobs_waiting", "held")] == 1 and found[("carpool_jobs_waiting", "after")] == 1, after


def test_a_page_names_no_job_and_what_clients_make_up_is_no_label(daemon: Daemon) -> None:
    daemon.python("pass", name="somebodys-name", ended=True)
    for path in ("/v1/jobs/12345", "/v1/nothing", "/v1/jobs/secret"):
        with pytest.raises(Exception, match="404"):
            daemon.get(path)
    page = daemon.get("/metrics")
    assert b"somebodys-name" not in page and b"12345" not in page and b"nothing" not in page and b"secret" not in page
    found = values(page)
    assert found[("carpool_api_requests_total", "GET", "/v1/jobs/{id}", "404")] == 2
    assert found[("carpool_api_requests_total", "any", "unknown", "404")] == 1


def test_on_tcp_there_is_this_page_and_nothing_else(scraped: tuple[Daemon, int]) -> None:
    daemon, port = scraped
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


def test_half_requests_on_tcp_take_no_more_than_their_share_and_keep_no_reader_out(scraped: tuple[Daemon, int]) -> None:
    daemon, port = scraped
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
        ("9467", "bad_address", "is not an address with a port, as in 127.0.0.1:9467"),
        ("localhost:9467", "bad_address", "'localhost' is not an IP address; for this machine alone: 127.0.0.1:9467"),
        ("127.0.0.1:0", "bad_address", "is not an address with a port"),
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


# A real Prometheus reads a real daemon, with the files of `docs/deploy/prometheus`


DEPLOY = Path(__file__).parents[3] / "docs" / "deploy" / "prometheus"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no prometheus here (Debian: apt-get install prometheus)",
)
#: Of GPUs, or of what does not happen in this test.
ABSENT = ("sm_active_ratio", "power_watts", "temperature_celsius", "offloads_total")
OFTEN = "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\n"


def queries() -> Iterator[str]:
    """Of the dashboard, as Grafana would ask them."""
    board = json.loads((DEPLOY / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")


@contextmanager
def prometheus(directory: Path, target: int) -> Iterator[int]:
    """The port of one that reads ``target``, with our configuration."""
    text = (DEPLOY / "prometheus.yml").read_text().replace("127.0.0.1:9467", f"127.0.0.1:{target}")
    (directory / "prometheus.yml").write_text(OFTEN + text)
    shutil.copy(DEPLOY / "carpool.rules.yml", directory)
    port = free_port()
    options = [f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with open(directory / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml", *options], stdout=log, stderr=log
        )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


def ask(port: int, path: str, **parameters: str) -> Any:
    """What the API answers; None while nobody does."""
    try:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it starts
            return None
        raise AssertionError(error.read().decode()) from None
    except OSError:
        return None


@needs_prometheus
def test_every_query_of_the_dashboard_has_an_answer(scraped: tuple[Daemon, int], tmp_path: Path) -> None:
    daemon, port = scraped
    held = daemon.python("pass", hold=True)
    steps = ("attach", "grow:p:4194304", "note:switch_us:300", "rounds:5", "say:done", "pause")
    with prometheus(tmp_path, port) as server:
        until(lambda: (ask(server, "query", query="carpool_build_info") or {}).get("result"))
        job = daemon.fake(*steps, line="done")
        for query in queries():
            wanted = not any(name in query for name in ABSENT)
            until(lambda query=query, wanted=wanted: _answered(server, query, wanted))
        rules = ask(server, "rules")["groups"][0]["rules"]
        until(lambda: all(rule["health"] == "ok" for rule in ask(server, "rules")["groups"][0]["rules"]))
        assert {rule["type"] for rule in rules} == {"recording", "alerting"}
        assert not _alerts(server)
        daemon.stop()
        until(lambda: _alerts(server))
        assert _alerts(server) == {"CarpoolDaemonAway"}
    assert held < job


def _alerts(server: int) -> set[str]:
    """Names of those that may be sent, without what a busy machine brings about by itself."""
    return {alert["labels"]["alertname"] for alert in ask(server, "alerts")["alerts"]} - {"CarpoolLoopSlow"}


def _answered(server: int, query: str, wanted: bool) -> bool:
    """A query that is wrong is an AssertionError."""
    found = ask(server, "query", query=query)
    return found is not None and (bool(found["result"]) or not wanted)


@needs_prometheus
def test_the_files_are_what_prometheus_takes() -> None:
    for command, name in (("config", "prometheus.yml"), ("rules", "carpool.rules.yml")):
        done = subprocess.run(
            ["promtool", "check", command, name], cwd=DEPLOY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
