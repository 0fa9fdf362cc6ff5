"""A real Prometheus reads a real daemon, with the files of `docs/deploy/prometheus`."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.daemon_harness import Daemon, until
from tests.ports import free_port

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
def test_every_query_of_the_dashboard_has_an_answer(make_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    port = free_port()
    daemon = make_daemon("--device", "host:64MiB", "--metrics", f"127.0.0.1:{port}").started()
    held = daemon.python("pass", hold=True)
    steps = ("attach", "grow:p:4194304", "note:switch_us:300", "rounds:5", "say:done", "pause")
    with prometheus(tmp_path, port) as server:
        until(lambda: (ask(server, "query", query="carpool_build_info") or {}).get("result"))
        job = daemon.fake(*steps)  # only what grows between two scrapes has a rate
        daemon.until_line(job, "done")
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
