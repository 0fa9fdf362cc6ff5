"""What a submission carries: the command as it will be run, the directory, the environment, the hints."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from carpool.cli.base.cli_error import Problem
from carpool.cli.request.command_line import resolve_command
from carpool.cli.request.job_options import captured_environment
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, as_json


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_submit_sends_everything_and_prints_the_id(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    standin.reactions["POST /v1/jobs"] = as_json({"id": 12}, 201)
    options = ["--name", "vae", "--iterations", "200", "--expect", "2m", "--mem", "300MiB/1.5GiB", "--weight", "5"]
    more = ["--after", "3,1", "--after", "2", "--device", "host0", "--exclusive", "--checkpoint"]
    shown = carpool.ok("submit", *options, *more, "sh", "-c", "true; --name x", cwd=tmp_path, env={"LR": "0.1"})
    assert shown == "12\n"
    body = standin.requests[-1].body  # behind those that ask what the words of --after mean
    env = body.pop("env")
    assert env["LR"] == "0.1"
    assert env["PATH"] == os.environ["PATH"]
    assert body == {
        "argv": ["sh", "-c", "true; --name x"],
        "cwd": str(tmp_path),
        "name": "vae",
        "iterations": 200,
        "duration_us": 120_000_000,
        "persistent_bytes": 300 << 20,
        "ephemeral_bytes": 3 << 29,
        "weight": 5,
        "after": [1, 2, 3],
        "device": "host0",
        "exclusive": True,
        "checkpoint": True,
    }  # what is as it is by default is left out


def test_a_single_memory_figure_is_the_persistent_one(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["POST /v1/jobs"] = as_json({"id": 12}, 201)
    assert json.loads(carpool.ok("submit", "--json", "--mem", "1MiB", "true")) == {"id": 12}
    body = standin.requests[0].body
    assert body["persistent_bytes"] == 1 << 20
    assert "ephemeral_bytes" not in body


def test_directory_is_where_the_command_is_looked_up(standin: StandIn, carpool: Cli, tmp_path: Path) -> None:
    standin.reactions["POST /v1/jobs"] = as_json({"id": 1}, 201)
    program(tmp_path / "work" / "tool")
    carpool.ok("submit", "-D", "work", "./tool", cwd=tmp_path)
    assert standin.requests[0].body["cwd"] == str(tmp_path / "work")
    assert standin.requests[0].body["argv"] == ["./tool"]


def test_a_script_runs_with_the_active_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    venv = program(tmp_path / "venv" / "bin" / "python")
    system = program(tmp_path / "bin" / "python3")
    path = {"PATH": str(system.parent)}
    words = ["train.py", "--lr", "1"]
    assert resolve_command(words, tmp_path, {**path, "VIRTUAL_ENV": str(tmp_path / "venv")}) == [str(venv), *words]
    assert resolve_command(words, tmp_path, path) == [str(system), *words]
    # A virtual environment that was deleted while it was active is passed over.
    assert resolve_command(words, tmp_path, {**path, "VIRTUAL_ENV": "/gone"})[0] == str(system)
    assert resolve_command(words, tmp_path, {"PATH": str(tmp_path)})[0] == sys.executable


def test_programs_run_as_they_are(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "torchrun")
    program(tmp_path / "own.py")
    env = {"PATH": str(tmp_path / "bin")}
    for words in (["torchrun", "train.py"], ["./own.py"], [str(tmp_path / "own.py"), "-m", "pkg"]):
        assert resolve_command(words, tmp_path, env) == words


def test_an_empty_path_finds_nothing(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no command 'python' in PATH"):
        resolve_command(["python"], tmp_path, {"PATH": ""})


def test_variables_that_are_no_text_stay_behind_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert captured_environment({"GOOD": "ä", "ODD": odd, odd: "x"}) == {"GOOD": "ä"}
    assert capsys.readouterr().err.count("is not UTF-8") == 2


def test_up_gives_presets_and_settings_to_the_daemon() -> None:
    from carpool.cli.commands.daemon.up import _daemon_options

    options = _daemon_options(
        ("host:1GiB",), "srtf", None, "salus", [("quantum_us", 7), ("max_lanes", None)], threads=2
    )
    assert options[:6] == ["--device", "host:1GiB", "--policy", "srtf", "--placement", "magm"]
    pairs = dict(zip(options[6::2], options[7::2], strict=True))
    assert pairs["--threads"] == "2"
    settings = [options[i + 1] for i, option in enumerate(options) if option == "--set"]
    assert settings == ["quantum_us=7us", "max_switch_share_ppm=100%", "max_lanes=default"]
    assert _daemon_options(preset_name="nvshare")[:2] == ["--policy", "tq"]
    carma = _daemon_options(preset_name="carma")
    assert carma[:4] == ["--policy", "pack", "--placement", "magm"] and "placement_strict=1" in carma
    assert _daemon_options(placement="lug", preset_name="carma")[3] == "lug"


@pytest.mark.parametrize(
    ("name", "content", "before"),
    [
        *(("tool", text, "sh") for text in (b"echo hi\n", b"", b"# no interpreter is named\nexec true\n")),
        *(("tool.bin", head, "") for head in (b"#!/bin/sh\n", b"\x7fELF\0\0", b"MZ\0\0")),
        ("train.py", b"#!/bin/sh\n", ""),
        ("train.py", b"print(1)\n", "python"),
    ],
)
def test_who_runs_a_program(tmp_path: Path, name: str, content: bytes, before: str) -> None:
    """What the kernel may understand runs by itself; what names no interpreter by sh, as shells do, or by Python."""
    tool = program(tmp_path / "bin" / name)
    tool.write_bytes(content)
    env = {"PATH": str(tool.parent)}
    for word in (f"bin/{name}", *([name] if before == "sh" else [])):
        run = {"sh": ["/bin/sh", str(tool)], "python": [sys.executable, word], "": [word]}[before]
        assert resolve_command([word, "-x"], tmp_path, env) == [*run, "-x"]
    os.mkfifo(tmp_path / "fifo", 0o755)
    assert resolve_command(["./fifo"], tmp_path, {}) == ["./fifo"], "nobody waits for it"
