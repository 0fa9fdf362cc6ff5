"""What fronts report of models: the owner's word only, for as long as the front is connected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.api.test_models import request
from tests.daemon.daemon_harness import NOBODY, Connection, Daemon, Refused, as_nobody, refusal, until

READY = {"state": "ready", "reason": ""}
BROKEN = {"state": "unavailable", "reason": "there is no file resnet.safetensors"}
#: A front that is another process: it reports once, says so, and waits for its end.
FRONT = """
import json, os, sys
tests, socket, uid, path, body = sys.argv[1:]
sys.path.insert(0, tests)
from pathlib import Path
from daemon_harness import Connection
os.setgroups([]) if os.geteuid() == 0 else None
os.setresgid(int(uid), int(uid), int(uid)) if int(uid) else None
os.setresuid(int(uid), int(uid), int(uid)) if int(uid) else None
connection = Connection(Path(socket))
connection.request("PUT", path, body)
print(connection.getresponse().status, flush=True)
sys.stdin.read()
"""


def report(connection: Connection, **models: Mapping[str, object]) -> Any:
    """One report of a front whose connection this is."""
    return put(connection, "/v1/serving", {"models": models})


def put(connection: Connection, path: str, value: object) -> Any:
    connection.request("PUT", path, json.dumps(value))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    if answer.status >= 400:
        raise Refused(answer.status, body["error"])
    return body


def states(daemon: Daemon) -> dict[str, str]:
    found = {}
    for model in daemon.get("/v1/models")["models"]:
        assert daemon.get(f"/v1/models/{model['name']}?owner={model['owner']}") == model
        found[f"{model['name']} of {model['owner']}"] = f"{model['state']} {model['reason']}".strip()
    return found


@contextmanager
def connected(daemon: Daemon) -> Iterator[Connection]:
    connection = Connection(daemon.socket)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def front(daemon: Daemon, uid: int = 0, **models: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has reported models, of user ``uid`` where that is not root."""
    with reporting(daemon, uid, "/v1/serving", {"models": models}) as process:
        yield process


@contextmanager
def reporting(daemon: Daemon, uid: int, path: str, body: object) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(Path(__file__).parents[1]), str(daemon.socket), str(uid), path, json.dumps(body)]
    process = subprocess.Popen(
        [sys.executable, "-c", FRONT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "200\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_state_is_known_from_the_report_to_the_end_of_the_connection(daemon: Daemon) -> None:
    me = os.geteuid()
    assert daemon.put("/v1/models/resnet", request())["state"] == "not served"
    daemon.put("/v1/models/bert", request())
    with connected(daemon) as first:
        report(first, resnet={"state": "preparing"})
        assert states(daemon) == {f"bert of {me}": "not served", f"resnet of {me}": "preparing"}
        report(first, resnet=READY, bert=BROKEN)
        assert states(daemon) == {f"bert of {me}": f"unavailable {BROKEN['reason']}", f"resnet of {me}": "ready"}
        assert daemon.put("/v1/models/resnet?replace=1", request())["state"] == "ready", "its old form is asked"
        report(first, bert=READY)
        assert states(daemon) == {f"bert of {me}": "ready", f"resnet of {me}": "not served"}
    until(lambda: set(states(daemon).values()) == {"not served"})


def test_of_several_fronts_the_one_that_answers_counts(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    with connected(daemon) as first:
        report(first, resnet=BROKEN)
        with connected(daemon) as second:
            report(second, resnet={"state": "preparing"})
            assert daemon.get("/v1/models/resnet")["state"] == "preparing"
            report(second, resnet=READY)
            assert daemon.get("/v1/models/resnet")["state"] == "ready"
        until(lambda: daemon.get("/v1/models/resnet")["reason"] == BROKEN["reason"])


def test_a_front_that_is_killed_serves_nothing(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    with front(daemon, resnet=READY) as process:
        assert daemon.get("/v1/models/resnet")["state"] == "ready"
        process.send_signal(signal.SIGKILL)
        until(lambda: daemon.get("/v1/models/resnet")["state"] == "not served")


def test_states_are_not_kept(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    with connected(daemon) as first:
        report(first, resnet=READY)
        daemon.restarted()
        assert daemon.get("/v1/models/resnet")["state"] == "not served"
    with connected(daemon) as second:
        report(second, resnet=READY)
        assert daemon.get("/v1/models/resnet")["state"] == "ready"
        daemon.terminate()  # a front that is connected keeps no daemon from stopping
        daemon.started()


FIGURES = {"requests_per_s": 2.5, "p50_us": 5000, "p99_us": None, "missed": 1, "waiting": 3, "copied_bytes": 4096}


def test_figures_are_shown_as_they_were_reported(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    with connected(daemon) as first:
        report(first, resnet=READY | {"figures": FIGURES | {"of_a_later_version": 1}, "weights_key": "f" * 16})
        shown = daemon.get("/v1/models/resnet")
        assert shown["figures"] == FIGURES and shown["on_devices"] == {}, "the core knows no such weights"
        report(first, resnet=READY | {"figures": {}})
        assert daemon.get("/v1/models/resnet")["figures"] == FIGURES | {
            "requests_per_s": 0.0, "p50_us": None, "missed": 0, "waiting": 0, "copied_bytes": 0
        }  # fmt: skip
        for wrong in ({"missed": -1}, {"requests_per_s": "many"}, {"copied_bytes": 2**60}):
            with pytest.raises(Refused):
                report(first, resnet=READY | {"figures": wrong})
        report(first, resnet=READY)
        assert daemon.get("/v1/models/resnet")["figures"] is None


def test_what_is_no_report_is_refused(daemon: Daemon) -> None:
    daemon.put("/v1/models/resnet", request())
    longer = {"state": "unavailable", "reason": "x" * 2001}
    with connected(daemon) as first:
        report(first, resnet=READY)
        for state in ({"state": "broken"}, {"state": "not served"}, {"state": "ready", "owner": 0}, longer, "ready"):
            assert refusal(report, first, resnet=state).answer == (400, "bad_request"), state
            assert daemon.get("/v1/models/resnet")["state"] == "ready", "the report before it counts"


def test_a_name_that_is_not_registered_counts_for_nothing(daemon: Daemon) -> None:
    with connected(daemon) as first:
        report(first, resnet=READY)
        daemon.put("/v1/models/resnet", request())
        assert daemon.get("/v1/models/resnet")["state"] == "not served"


def test_a_front_speaks_for_its_own_user_only(daemon: Daemon) -> None:
    """Neither a user for root, nor root, who administers everything, for a user; and nobody else hears of a reason."""
    body = request(env={})
    daemon.put("/v1/models/resnet", body)
    as_nobody(daemon, f"daemon.put('/v1/models/resnet', {body!r})")
    mine, theirs = "resnet of 0", f"resnet of {NOBODY}"
    with front(daemon, uid=NOBODY, resnet=READY):
        assert states(daemon) == {mine: "not served", theirs: "ready"}
        with connected(daemon) as own:
            report(own, resnet=BROKEN)
            assert states(daemon) == {mine: f"unavailable {BROKEN['reason']}", theirs: "ready"}
            (seen,) = as_nobody(daemon, "daemon.get('/v1/models')")["models"]
            assert (seen["owner"], seen["state"], seen["reason"]) == (NOBODY, "ready", "")
            assert as_nobody(daemon, "attempt(lambda: daemon.get('/v1/models/resnet?owner=0'))") == "unknown_model"
