"""A web server and a command hear of the starts and ends of jobs, from a real daemon."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from tests.daemon.daemon_harness import NOBODY, PATIENCE_S, Daemon, Make, as_nobody, refusal, until

ALL = ["start", "end", "failure", "timeout"]


class WebServer(ThreadingHTTPServer):
    """What it was told is in ``heard``; it answers with the next of ``answers``, and 200 when there are no more.

    0: it does not answer before ``silent`` is set.
    """

    def __init__(self, port: int = 0) -> None:
        self.heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.answers: list[int] = []
        self.silent = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/token-of-ours?x=1"
        threading.Thread(target=self.serve_forever, daemon=True, args=(0.01,)).start()

    def next(self) -> dict[str, Any]:
        return self.heard.get(timeout=PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (self.path, self.headers["Content-Type"]) == ("/token-of-ours?x=1", "application/json")
        self.server.heard.put(body)
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if answer == 0:
            self.server.silent.wait()
        self.send_response(answer or 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server
        server.silent.set()
        server.shutdown()


def webhook(url: str, *on: str) -> dict[str, Any]:
    return {"on": list(on) or ALL, "webhook": url}


def settled(daemon: Daemon, job: int) -> list[dict[str, Any]]:
    """When no notice of the job is owed any more."""
    until(lambda: all(notice["state"] != "owed" for notice in notices_of(daemon, job)))
    return notices_of(daemon, job)


def notices_of(daemon: Daemon, job: int) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", daemon.get(f"/v1/jobs/{job}/notices")["notices"])


def test_a_web_server_hears_of_starts_ends_failures_and_time_limits(daemon: Daemon, web: WebServer) -> None:
    secret = {"env": {"PATH": os.environ["PATH"], "TOKEN": "very-secret"}, "notify": [webhook(web.url)]}
    done = daemon.submit("true", name="train", **secret)
    start, end = web.next(), web.next()
    assert (start["event"], start["job"], start["outcome"], start["attempt"]) == ("start", done, None, 1)
    assert (end["event"], end["outcome"], end["exit_code"], end["name"]) == ("end", "succeeded", 0, "train")
    failed = daemon.submit("sh", "-c", "exit 3", **secret)
    assert (web.next()["event"], web.next()["text"].split(" has ended: ")[1]) == ("start", "failed, exit code 3")
    late = daemon.submit("sleep", "60", time_us=50_000, **secret)
    assert (web.next()["event"], (end := web.next())["event"], end["outcome"]) == ("start", "timeout", "timed_out")
    assert "secret" not in json.dumps([start, end]) and "sleep 60" not in json.dumps(end)
    for job in (done, failed, late):
        assert [notice["state"] for notice in settled(daemon, job)] == ["sent", "sent"]
    assert daemon.show(done)["notify"] == [f"webhook:http://127.0.0.1:{web.server_port}"]
    assert "token-of-ours" not in json.dumps(daemon.get("/v1/jobs")) + daemon.log()


def test_only_what_was_chosen_is_told_and_an_end_is_every_end(daemon: Daemon, web: WebServer) -> None:
    daemon.wait(daemon.submit("true", notify=[webhook(web.url, "failure", "timeout")]))
    fails = daemon.submit("false", notify=[webhook(web.url, "end")])
    told = web.next()
    assert (told["job"], told["event"]) == (fails, "failure")
    held = daemon.submit("true", hold=True, notify=[webhook(web.url, "end")])
    daemon.cancel(held)
    assert (told := web.next())["outcome"] == "cancelled" and told["started"] is None


def test_a_command_runs_in_the_jobs_directory_with_words_as_they_were_given(daemon: Daemon, fifo: Path) -> None:
    code = "import os,sys,json; json.dump([sys.argv[1:], os.getcwd(), dict(os.environ)], open('fifo', 'w'))"
    target = {"on": ["end"], "command": [sys.executable, "-c", code, "a; touch x", "$HOME"]}
    env = {"PATH": os.environ["PATH"], "TOKEN": "very-secret"}
    job = daemon.submit("sh", "-c", "exit 3", cwd=str(fifo.parent), env=env, notify=[target])
    words, directory, variables = json.loads(fifo.read_text())
    assert words == ["a; touch x", "$HOME"] and directory == str(fifo.parent)
    assert not (fifo.parent / "x").exists() and "TOKEN" not in variables
    wanted = {"CARPOOL_EVENT": "failure", "CARPOOL_JOB_ID": str(job), "CARPOOL_JOB_EXIT_CODE": "3"}
    assert wanted.items() <= variables.items() and "CARPOOL_JOB" not in variables
    assert settled(daemon, job)[0]["state"] == "sent"


def test_what_has_failed_or_was_begun_by_a_killed_daemon_is_not_sent_again(daemon: Daemon, web: WebServer) -> None:
    """What it has not begun is sent by the next one, as `test_notice_order` shows."""
    for answer, text in ((503, "503"), (0, "whether it arrived is not known")):  # 0: none
        web.answers = [answer]
        job = daemon.submit("true", notify=[webhook(web.url, "end")])
        web.next()
        if not answer:
            daemon.restarted()
        (notice,) = settled(daemon, job)
        assert (notice["state"], notice["tries"]) == ("failed", 1) and text in notice["text"]
    other = daemon.submit("true", notify=[webhook(web.url, "end")])
    assert web.next()["job"] == other and web.heard.empty()


def test_a_server_that_never_answers_holds_up_nobody(make_daemon: Make, web: WebServer) -> None:
    daemon = make_daemon().hurry("hooks.control_groups.SHIMS_END_S").started()  # it does not end what still tells
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:  # connects, and nobody accepts
        stuck = webhook(f"http://127.0.0.1:{silent.server_port}/", "start")
        for _ in range(3):
            assert daemon.wait(daemon.submit("true", notify=[stuck]))["outcome"] == "succeeded"
        daemon.terminate()
        daemon.started()


def test_a_notice_is_sent_by_a_process_of_the_jobs_owner(daemon: Daemon, fifo: Path) -> None:
    fifo.chmod(0o622)
    for directory in (fifo.parent, *fifo.parent.parents):
        if directory.stat().st_uid == os.getuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    target = {"on": ["end"], "command": ["sh", "-c", f"{{ id -u; grep CapEff /proc/self/status; }} > {fifo}"]}
    job = as_nobody(daemon, f"daemon.submit('true', cwd='/', notify=[{target!r}])")
    assert fifo.read_text().split() == [str(NOBODY), "CapEff:", "0" * 16]
    seen = as_nobody(daemon, f"[attempt(lambda: daemon.get('/v1/jobs/{job}/notices')), daemon.show({job})]", 65533)
    assert seen[0] == "not_owner" and seen[1]["notify"] == []


@pytest.mark.parametrize(
    "target",
    [
        {"on": ["ends"], "webhook": "http://x/"},
        {"on": ["end"]},
        {"on": ["end"], "webhook": "file:///etc/passwd"},
        {"on": ["end"], "webhook": "http://user:word@x/"},
        {"on": ["end"], "webhook": "http://x/\r\nHost: y"},
        {"on": ["end"], "command": ["x\0"]},
        {"on": ["end"], "webhook": "http://x/" + "y" * 4096},
    ],
)
def test_targets_that_nobody_could_tell_anything(shared: Daemon, target: dict[str, Any]) -> None:
    assert refusal(shared.submit, "true", notify=[target]).code == "bad_notify"
