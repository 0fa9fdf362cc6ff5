"""Durable submissions per second through the API, and ``carpool ls`` with ten thousand jobs, interpreter included."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.figures import Figure, median_figure
from benchmarks.jobs import WORKLOADS, environment
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

CLIENTS = 16
SUBMISSIONS_PER_S = 300.0
LS_S = 0.5


def run(quick: bool) -> list[Figure]:
    jobs = 1000 if quick else 10_000
    with tempfile.TemporaryDirectory() as home, Session(_state(Path(home)), ["host:64MiB"], "fifo") as client:
        blocker = client.submit(_request("sleep", "3600"))
        rates = [_submit_many(client, blocker, jobs // 5) for _ in range(5)]
        bare = [_bare_commits_per_s(Path(home), CLIENTS) for _ in range(5)]
        listings = [_list_s(Path(home) / "state", jobs) for _ in range(7)]
    detail = {"clients": CLIENTS, "bare_sqlite_commits_per_s": bare}
    return [
        median_figure("service", f"durable submissions, {CLIENTS} clients", "1/s", rates, target=SUBMISSIONS_PER_S,
                      at_least=True, detail=detail),
        median_figure("service", f"carpool ls with {jobs:,} jobs, cold start included", "s", listings[1:], target=LS_S),
    ]  # fmt: skip


def _state(home: Path) -> Path:
    """The daemon's home, with limits that one user's ten thousand waiting jobs do not reach."""
    state = home / "state"
    state.mkdir(mode=0o700)
    (state / "limits.toml").write_text('jobs = 20000\nsubmissions_at_once = 20000\nsubmissions_size = "1 GiB"\n')
    return state


def _request(*command: str, after: tuple[int, ...] = ()) -> SubmitRequest:
    return SubmitRequest(argv=list(command), cwd=str(WORKLOADS), env=environment(), after=list(after))


def _submit_many(client: DaemonClient, blocker: int, count: int) -> float:
    """Jobs that wait for another, so that only accepting them is measured; per second."""
    errors: list[Exception] = []

    def submit() -> None:
        try:
            with DaemonClient(client.home.root) as own:
                for _ in range(count // CLIENTS):
                    own.submit(_request("true", after=(blocker,)))
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which raises it
            errors.append(error)

    threads = [threading.Thread(target=submit) for _ in range(CLIENTS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return (count // CLIENTS) * CLIENTS / (time.perf_counter() - begin)


def _bare_commits_per_s(directory: Path, rows: int) -> float:
    """What the disk gives: commits of one row each, by one writer, nothing around them."""
    connection = sqlite3.connect(directory / "bare.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)")
    begin = time.perf_counter()
    for _ in range(rows):
        connection.execute("INSERT INTO t (text) VALUES (?)", ("x" * 2000,))
    seconds = time.perf_counter() - begin
    connection.close()
    return rows / seconds


def _list_s(home: Path, jobs: int) -> float:
    env = environment() | {"CARPOOL_HOME": str(home), "NO_COLOR": "1"}
    begin = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-m", "carpool.cli", "ls"], env=env, capture_output=True, text=True, check=True
    )
    seconds = time.perf_counter() - begin
    if len(result.stdout.splitlines()) < jobs // 16 * 16 // 2:
        raise RuntimeError(f"carpool ls listed {len(result.stdout.splitlines())} of {jobs} jobs")
    return seconds
