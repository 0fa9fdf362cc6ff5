"""carpool model: what it asks of the daemon, what it prints, and what it finds wrong by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.request.model_registration import weights_file
from tests.cli.conftest import Cli
from tests.cli.real import DEVICE
from tests.cli.standin import Answer, Request, StandIn, as_json, problem


def info(name: str = "resnet", **changes: Any) -> dict[str, Any]:
    facts = {
        "name": name,
        "owner": 4_000_001,  # nobody has that number
        "factory": "shop:resnet",
        "weights": "/w/resnet.safetensors",
        "deadline_us": 50_000,
        "max_batch": 8,
        "max_delay_us": 2_000,
        "priority": 100,
        "python": "/usr/bin/python3",
        "cwd": "/shop",
        "variables": 37,
        "added_us": 0,
        "state": "ready",
        "reason": "",
        "figures": None,
        "on_devices": {},
    }
    return facts | changes


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "resnet.safetensors"
    path.write_bytes(b"not loaded here")
    return path


def added(standin: StandIn, name: str = "resnet") -> None:
    standin.reactions[f"PUT /v1/models/{name}"] = as_json(info(name))


def test_what_a_worker_needs_is_sent(standin: StandIn, carpool: Cli, tmp_path: Path, weights: Path) -> None:
    added(standin)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    (tmp_path / "code").mkdir()
    limits = ["--deadline", "50ms", "--max-batch", "4", "--max-delay", "2ms", "--priority", "7"]
    env = {"VIRTUAL_ENV": str(tmp_path / "venv"), "TOKEN": "secret"}
    arguments = ["--factory", "shop:resnet", "--weights", weights.name, "-D", "code", *limits]
    shown = carpool.ok("model", "add", "resnet", *arguments, cwd=tmp_path, env=env)
    assert shown == "model resnet registered\n"
    (request,) = standin.requests
    environment = request.body.pop("env")
    assert environment.items() >= env.items()
    assert (request.query, request.body) == (
        "",
        {
            "factory": "shop:resnet",
            "weights": str(weights),
            "python": str(python),
            "cwd": str(tmp_path / "code"),
            "deadline_us": 50_000,
            "max_batch": 4,
            "max_delay_us": 2_000,
            "priority": 7,
        },
    )


def test_without_options_the_daemon_knows_the_rest(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    added(standin)
    carpool.ok("model", "add", "resnet", "--factory", "shop:resnet", "--replace", cwd=tmp_path)
    (request,) = standin.requests
    assert request.query == "replace=1"
    assert set(request.body) == {"factory", "python", "cwd", "env"}
    assert request.body["cwd"] == str(tmp_path)
    assert Path(request.body["python"]).is_absolute()


def test_an_index_and_a_link_keep_their_names(standin: StandIn, carpool: Cli, tmp_path: Path, weights: Path) -> None:
    """What a link leads to often has no ending at all."""
    added(standin)
    (tmp_path / "blob").write_bytes(b"{}")
    (tmp_path / "m.safetensors.index.json").symlink_to(tmp_path / "blob")
    carpool.ok("model", "add", "resnet", "--factory", "m:f", "--weights", "m.safetensors.index.json", cwd=tmp_path)
    assert standin.requests[0].body["weights"] == str(tmp_path / "m.safetensors.index.json")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["a/b", "--factory", "m:f"], 2, "'a/b' is not a name for a model"),
        (["a"], 2, "Missing option '--factory'"),
        (["a", "--factory", "m.f"], 2, "write module:function"),
        (["a", "--factory", "m:f", "--weights", "m.bin"], 2, "must end in .safetensors or .safetensors.index.json"),
        (["a", "--factory", "m:f", "--weights", "no.safetensors"], 4, "there is no file no.safetensors"),
        (["a", "--factory", "m:f", "--weights", "dir.safetensors"], 2, "dir.safetensors is not a regular file"),
        (["a", "--factory", "m:f", "--weights", "fifo.safetensors"], 2, "fifo.safetensors is not a regular file"),
        (["a", "--factory", "m:f", "--weights", "loop.safetensors"], 5, "loop.safetensors cannot be read: Too many"),
        (["a", "--factory", "m:f", "--deadline", "0ms"], 2, "it must be 1us or more"),
        (["a", "--factory", "m:f", "--deadline", "-5ms"], 2, "'-5ms' is not a time"),
        (["a", "--factory", "m:f", "--max-delay", "some"], 2, "'some' is not a time"),
        (["a", "--factory", "m:f", "--max-batch", "0"], 2, "it must be 1 or more"),
        (["a", "--factory", "m:f", "--priority", "0"], 2, "it must be 1 or more"),
        (["a", "--factory", "m:f", "-D", "nowhere"], 4, "there is no directory"),
    ],
)
def test_mistakes_reach_no_daemon(
    standin: StandIn, carpool: Cli, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    (tmp_path / "dir.safetensors").mkdir()
    os.mkfifo(tmp_path / "fifo.safetensors")
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    result = carpool.fails(code, "model", "add", *arguments, cwd=tmp_path)
    assert text in result
    assert "Traceback" not in result
    assert standin.requests == []


def test_weights_that_may_not_be_read(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer is made up: root may read everything."""
    assert weights_file(str(weights)) == weights
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (weights, os.R_OK))
    with pytest.raises(Problem, match="you may not read") as refused:
        weights_file(str(weights))
    assert refused.value.exit_code == Exit.REFUSED


def test_models_are_listed(standin: StandIn, carpool: Cli) -> None:
    refused = {"state": "unavailable", "reason": "no such\nfile"}
    bert = info("bert", weights=None, deadline_us=None, max_delay_us=0, owner=0, **refused)
    figures = {"requests_per_s": 2.54, "p50_us": 6_100, "p99_us": None, "missed": 1, "waiting": 0, "copied_bytes": 0}
    asked = info(figures=figures, on_devices={"host0": 4096})
    standin.reactions["GET /v1/models"] = as_json({"models": [bert, asked]})
    for arguments in (["model"], ["model", "ls"]):
        header, first, second = carpool.ok(*arguments).splitlines()
        assert "P50" in header and "P99" not in header, "of P99 nothing is known"
        assert first.split()[:3] == ["bert", "root", "-"] and second.split()[:2] == ["resnet", "4000001"]
        assert json.loads(carpool.ok(*arguments, "--json")) == {"models": [bert, asked]}
    standin.reactions["GET /v1/models"] = as_json({"models": []})
    assert "no models yet: carpool model add" in carpool.ok("model", "ls")


def test_the_state_that_an_earlier_daemon_does_not_know(standin: StandIn, carpool: Cli) -> None:
    facts = {name: value for name, value in info().items() if name not in ("state", "reason")}
    standin.reactions["GET /v1/models"] = as_json({"models": [facts]})
    assert carpool.ok("model", "ls").splitlines()[1].endswith("  not served")


def test_one_is_shown_or_removed(standin: StandIn, carpool: Cli) -> None:
    standin.reactions |= {f"{method} /v1/models/resnet": as_json(info()) for method in ("GET", "DELETE")}
    assert json.loads(carpool.ok("model", "show", "resnet", "--json")) == info()
    assert carpool.ok("model", "rm", "resnet", "--owner", "1000") == "model resnet removed\n"
    assert standin.requests[-1].query == "owner=1000"
    assert json.loads(carpool.ok("model", "rm", "resnet", "--json")) == info()


def test_what_the_daemon_refuses(standin: StandIn, carpool: Cli) -> None:
    standin.reactions |= {
        "PUT /v1/models/resnet": problem(409, "model_exists", "there is a model 'resnet' already"),
        "GET /v1/models/resnet": problem(404, "unknown_model", "there is no model 'resnet'"),
        "DELETE /v1/models/resnet": problem(404, "unknown_model", "there is no model 'resnet'"),
    }
    assert carpool("model", "add", "resnet", "--factory", "m:f").returncode == 5
    for command in ("show", "rm"):
        result = carpool("model", command, "resnet", "--json")
        assert (result.returncode, json.loads(result.stderr)["error"]["code"]) == (4, "unknown_model")


def test_names_are_completed(standin: StandIn, carpool: Cli) -> None:
    def listed(_: Request) -> Answer:
        return as_json({"models": [info("bert"), info("resnet-50"), info("resnet-152")]})

    standin.reactions["GET /v1/models"] = listed
    env = {"_CARPOOL_COMPLETE": "bash_complete", "COMP_WORDS": "carpool model rm res", "COMP_CWORD": "3"}
    assert carpool("", env=env).stdout.split() == ["plain,resnet-50", "plain,resnet-152"]


def test_with_a_real_daemon(own_daemon: Cli, home: Path, tmp_path: Path, weights: Path) -> None:
    arguments = ["resnet", "--factory", "shop:resnet", "--weights", weights.name, "--json"]
    made = json.loads(own_daemon.ok("model", "add", *arguments, cwd=tmp_path, env={"TOKEN": "a secret"}))
    assert (made["weights"], made["cwd"], made["owner"]) == (str(weights), str(tmp_path), os.geteuid())
    result = own_daemon("model", "add", *arguments, cwd=tmp_path)
    assert (result.returncode, json.loads(result.stderr)["error"]["code"]) == (5, "model_exists")
    own_daemon.ok("down")
    own_daemon.ok("up", "--device", DEVICE)
    assert json.loads(own_daemon.ok("model", "show", "resnet", "--json")) == made
    said = [own_daemon.ok("model", "show", "resnet"), own_daemon.ok("model", "ls"), (home / "daemon.log").read_text()]
    assert "a secret" not in str([made, *said])
    own_daemon.ok("model", "rm", "resnet")
    assert json.loads(own_daemon.ok("model", "ls", "--json")) == {"models": []}
