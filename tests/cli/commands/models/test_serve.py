"""carpool serve: what it finds wrong by itself, what it becomes, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from carpool.serve.client import Client, Refused
from tests.cli.commands.models.test_model import info
from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait
from tests.cli.standin import StandIn, as_json

MODEL = """
import torch

def scaling():
    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.constant_(model.weight, 3.0)
    model.example_inputs = torch.zeros(1, 2)
    return model

def missing():
    return torch.nn.Linear(2, 2)
"""


@contextmanager
def serving(carpool: Cli, cache: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    carpool.env["XDG_CACHE_HOME"] = str(cache)
    process = carpool.start(["serve", "--port", "0", *options], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest


def until_line(process: subprocess.Popen[str], *starts: str) -> str:
    """The first line that begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(starts):
            return line.strip()
    raise AssertionError(f"it has ended, and has not said {starts}")


def until_states(carpool: Cli, **wanted: str) -> None:
    """Wait until `carpool model` says that of each model; a reason that is expected may be a part of what is said."""
    deadline = time.monotonic() + 60
    while not _are(found := _states(carpool), wanted):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def _states(carpool: Cli) -> dict[str, str]:
    models = json.loads(carpool.ok("model", "ls", "--json"))["models"]
    return {model["name"]: f"{model['state']} {model['reason']}".strip() for model in models}


def _are(found: dict[str, str], wanted: dict[str, str]) -> bool:
    return found.keys() == wanted.keys() and all(text in found[name] for name, text in wanted.items())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65536"], "65536 is not in the range"),
        (["--order", "lifo"], "'lifo' is not one of 'fcfs', 'edf', 'priority'"),
        (["--store", "lots"], "'lots' is not a size"),
        (["--standby", "0"], "0 is too small: it must be 1 or more"),
        (["--queue", "some"], "'some' is not a whole number"),
        (["--model", "a/b"], "'a/b' is not a name for a model"),
        (["--connections", "0"], "0 is too small: it must be 1 or more"),
    ],
)
def test_a_wrong_command_line(carpool: Cli, arguments: list[str], said: str) -> None:
    assert said in carpool.fails(2, "serve", *arguments)


def test_a_model_that_is_not_registered(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/models"] = as_json({"models": [info("resnet", owner=os.geteuid()), info(owner=4711)]})
    result = carpool.fails(4, "serve", "--model", "resnet", "--model", "bert")
    assert "there is no model bert" in result and "your models: resnet\n" in result


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from elsewhere, so a token is needed"),
        (["--token-file", "token"], "others may read or write the token"),
        (["--host", "192.0.2.1", "--token-file", "good"], "cannot listen on 192.0.2.1"),
    ],
)
def test_what_cannot_be_served(standin: StandIn, carpool: Cli, tmp_path: Path, options: list[str], said: str) -> None:
    standin.reactions["GET /v1/models"] = as_json({"models": []})
    for name, mode in (("token", 0o644), ("good", 0o600)):
        (tmp_path / name).write_text("0123456789abcdef")
        (tmp_path / name).chmod(mode)
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    result = carpool.fails(1, "serve", "--port", "0", *options, cwd=tmp_path, env=env)
    assert said in result and "Traceback" not in result
    result = carpool("serve", "--json", "--port", "0", *options, cwd=tmp_path, env=env)
    assert json.loads(result.stderr)["error"]["code"] == "cannot_serve" and result.stdout == ""


def test_without_models_it_says_how_to_add_one(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    standin.reactions["GET /v1/models"] = as_json({"models": []})
    with serving(carpool, tmp_path) as process:
        assert "carpool model add NAME" in until_line(process, "no models yet")
        until_line(process, "serving on http://127.0.0.1:")
    with serving(carpool, tmp_path, "--json") as process:
        assert json.loads(until_line(process, "{"))["url"].startswith("http://127.0.0.1:")


def until_figures(carpool: Cli, name: str) -> None:
    """Until the last minute's figures of the model are known, and where its weights are."""
    deadline = time.monotonic() + 60
    while (info := json.loads(carpool.ok("model", "show", name, "--json")))["figures"]["p50_us"] is None:
        assert time.monotonic() < deadline, info
    figures = info["figures"]
    assert figures["requests_per_s"] > 0 and figures["p50_us"] <= figures["p99_us"] and figures["missed"] == 0
    assert list(info["on_devices"]) == ["host0"] and info["on_devices"]["host0"] >= figures["copied_bytes"] > 0
    assert "on devices" in carpool.ok("model", "show", name) and " ms" in carpool.ok("model", "ls")


def test_models_are_computed_by_jobs_of_the_daemon(own_daemon: Cli, home: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODEL)
    own_daemon.env["VIRTUAL_ENV"] = sys.prefix  # that is where PyTorch is
    for name in ("scaling", "missing"):
        own_daemon.ok("model", "add", name, "--factory", f"shop:{name}", cwd=tmp_path)
    with serving(own_daemon, tmp_path, "--standby", "1") as process:
        url = until_line(process, "serving on ").removeprefix("serving on ")
        lines = [until_line(process, "model ") for _ in range(2)]
        assert "model scaling is ready" in lines
        assert any(line.startswith("model missing: ") and "example_inputs" in line for line in lines)
        until_states(own_daemon, scaling="ready", missing="example_inputs")
        with Client(url) as client, ThreadPoolExecutor(1) as pool:
            assert client.infer("scaling", np.float32([[1, 2]])).tolist() == [[9, 9]]
            until_figures(own_daemon, "scaling")
            jobs = json.loads(own_daemon.ok("ls", "--json"))["jobs"]
            assert [job["name"] for job in jobs] == ["model worker"] * 2
            kill_and_wait(daemon_pid(home))
            answer = pool.submit(client.infer, "scaling", np.float32([[1, 1]]))
            own_daemon.ok("up", "--device", DEVICE)
            assert answer.result(60).tolist() == [[6, 6]]
            until_states(own_daemon, scaling="ready", missing="unavailable")
            own_daemon.ok("model", "rm", "missing")
            own_daemon.ok("model", "add", "second", "--factory", "shop:scaling", cwd=tmp_path)
            assert until_line(process, "model second") == "model second is ready"
            assert client.infer("second", np.float32([[1, 2]])).tolist() == [[9, 9]]
            with pytest.raises(Refused, match="there is no model 'missing'"):
                client.infer("missing", np.float32([[1, 2]]))
    until_states(own_daemon, scaling="not served", second="not served")
    assert "jobs that are workers of models" in own_daemon.fails(1, "simulate", "--from-journal", "--policy", "fair")


def test_a_server_that_is_killed_serves_nothing(own_daemon: Cli, home: Path, tmp_path: Path) -> None:
    """The kernel closes its connection to the daemon; no time has to pass."""
    own_daemon.env |= {"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(home.parent)}
    own_daemon.ok("model", "add", "gone", "--factory", "nowhere:gone", cwd=tmp_path)
    until_states(own_daemon, gone="not served")
    process = own_daemon.start(["serve", "--port", "0"], stdout=subprocess.DEVNULL)
    try:
        until_states(own_daemon, gone="unavailable ")
        assert "unavailable: " in own_daemon.ok("model", "show", "gone")
    finally:
        process.kill()
        process.wait()
    until_states(own_daemon, gone="not served")
