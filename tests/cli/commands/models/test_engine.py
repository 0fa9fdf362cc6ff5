"""carpool engine: what it writes into the file, what it asks of the daemon, and what it prints."""

from __future__ import annotations

import json
import os
import pwd
import tomllib
from pathlib import Path
from typing import Any

import pytest

from carpool.cli.base.cli_error import Exit
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, Request, StandIn, as_json, problem

COMMAND = ["--", "llama-server", "-m", "a b.gguf", "--port", "{port}"]


@pytest.fixture
def file(carpool: Cli, tmp_path: Path) -> Path:
    carpool.env["XDG_CONFIG_HOME"] = str(tmp_path)
    return tmp_path / "carpool" / "engines.toml"


def info(name: str = "llama", **report: Any) -> dict[str, Any]:
    state = {"state": "ready", "models": ["l"], "job": 7, "starts": 1, "url": "http://127.0.0.1:8000"}
    place = {"device": "cuda0", "memory_bytes": 3 << 30, "moved_out": False}
    return {"name": name, "owner": os.geteuid(), "report": state | report, **place}


def test_an_engine_is_written_into_the_file(carpool: Cli, file: Path, tmp_path: Path) -> None:
    options = ["--model", "l", "--model", "l2", "--as", "org/l", "--ttl", "never", "--pin", "--env", "HF_HOME=/m=x"]
    shown = carpool.ok("engine", "add", "llama", *options, *COMMAND, cwd=tmp_path)
    assert shown == f"engine llama added to {file}\n"
    assert file.stat().st_mode & 0o77 == 0, "there may be secrets in it"
    assert tomllib.loads(file.read_text()) == {
        "llama": {
            "cmd": COMMAND[1:],
            "models": ["l", "l2"],
            "as": "org/l",
            "ttl": "never",
            "pin": True,
            "cwd": str(tmp_path),
            "env": {"HF_HOME": "/m=x"},
        }
    }


def test_what_people_have_written_stays(carpool: Cli, file: Path) -> None:
    file.parent.mkdir()
    theirs = '# ours\n[a] # first\ncmd = ["serve", "{port}"]\n\n[b]\ncmd = "serve {port}"\n[b.env]\nX = "1"\n'
    file.write_text(theirs)
    carpool.ok("engine", "add", "c", *COMMAND)
    assert file.read_text().startswith(theirs)
    refused = carpool("engine", "add", "a", *COMMAND)
    assert refused.returncode == Exit.USAGE and "replace it: --replace" in refused.stderr
    carpool.ok("engine", "add", "b", "--replace", *COMMAND)
    carpool.ok("engine", "rm", "c")
    found = tomllib.loads(file.read_text())
    assert list(found) == ["a", "b"] and "env" not in found["b"] and file.read_text().startswith("# ours\n[a] # first")


def test_all_letters_can_be_written(carpool: Cli, file: Path, tmp_path: Path) -> None:
    (where := tmp_path / "\N{GRINNING FACE}").mkdir()
    carpool.ok("engine", "add", "a", "--model", "\N{GRINNING FACE}\u00e9", *COMMAND, '"\x7f\n', cwd=where)
    (engine,) = tomllib.loads(file.read_text()).values()
    assert engine["cwd"] == str(where) and engine["models"] == ["\N{GRINNING FACE}\u00e9"]
    assert engine["cmd"][-1] == '"\x7f\n'
    refused = carpool("engine", "add", "b", *COMMAND, "\udcff")
    assert refused.returncode == Exit.USAGE and "cannot be written as text" in refused.stderr
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_link_to_the_file_stays(carpool: Cli, file: Path, tmp_path: Path) -> None:
    """People keep the file elsewhere, under version control."""
    file.parent.mkdir()
    (kept := tmp_path / "kept.toml").write_text("# ours\n")
    file.symlink_to(kept)
    carpool.ok("engine", "add", "a", *COMMAND)
    assert file.is_symlink() and kept.read_text().startswith("# ours\n\n[a]\n")


def test_notes_before_the_next_table_stay(carpool: Cli, file: Path) -> None:
    file.parent.mkdir()
    other = '\n# of b\n\n[b]\ncmd = "serve {port}"\n# the end\n'
    file.write_text(f'# of a\n[a]\n# in a\ncmd = "serve {{port}}"\n[a.env]\nX = "1"\n{other}')
    carpool.ok("engine", "rm", "a")
    assert file.read_text() == f"# of a\n{other}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "a", "--", "serve"], "write {port} where the engine takes its port"),
        (["add", "a b", *COMMAND], "'a b' is not a name"),
        (["add", "a", "--ttl", "soon", *COMMAND], "engine a: ttl: 'soon' is not a time"),
        (["add", "a", "--priority", "999999", *COMMAND], "engine a: priority: expected"),
        (["add", "a", "--env", "1=2", *COMMAND], "--env '1=2': write NAME=VALUE"),
        (["add", "b", "--model", "a", *COMMAND], "engines a and b both answer to the model 'a'"),
        (["rm", "nothing"], "has no engine nothing"),
    ],
)
def test_mistakes_leave_the_file_as_it_was(carpool: Cli, file: Path, arguments: list[str], says: str) -> None:
    file.parent.mkdir()
    file.write_text('[a]\ncmd = "serve {port}"\n' if "b" in arguments else "")
    before = file.read_text()
    refused = carpool("engine", *arguments)
    assert refused.returncode in (Exit.USAGE, Exit.NOT_FOUND) and says in refused.stderr
    assert file.read_text() == before and [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_broken_file_is_not_touched(carpool: Cli, file: Path) -> None:
    file.parent.mkdir()
    file.write_text("[a\n")
    refused = carpool("engine", "add", "b", *COMMAND)
    assert refused.returncode == Exit.USAGE and f"correct {file}" in refused.stderr
    assert file.read_text() == "[a\n"


def test_a_table_that_cannot_be_told_apart(carpool: Cli, file: Path) -> None:
    file.parent.mkdir()
    file.write_text('[b]\ncmd = """\nserve {port}\n[a]"""\n[a]\ncmd = "serve {port}"\n')
    refused = carpool("engine", "rm", "a")
    assert refused.returncode == Exit.FAILED and "cannot be told apart" in refused.stderr


def test_the_list(standin: StandIn, carpool: Cli) -> None:
    standin.reactions["GET /v1/engines"] = as_json({"engines": []})
    assert carpool.ok("engine").startswith("no engine is served: carpool engine add")
    ready = info(in_flight=2, first_token_us=12_345, tokens_per_s=31.5)
    away = info("small", tokens_per_s=0.0) | {"moved_out": True}
    standin.reactions["GET /v1/engines"] = as_json({"engines": [ready, away]})
    shown = carpool.ok("engine", "ls", env={"COLUMNS": "200"})
    first, second = (line.split() for line in shown.splitlines()[1:])
    assert first[2:] == ["l", "ready", "cuda0", "3", "GiB", "2", "12", "ms", "31.5", "7", "http://127.0.0.1:8000"]
    assert second[0] == "small" and second[3:5] == ["moved", "out"]
    assert json.loads(carpool.ok("engine", "ls", "--json"))["engines"][0]["report"]["in_flight"] == 2
    shown = carpool.ok("engine", "show", "llama")
    assert "first token 12 ms, 31.5 tokens/s" in shown and "3 GiB" in shown


def test_weights_that_are_only_mapped(standin: StandIn, carpool: Cli) -> None:
    mapped = info(mapped_bytes={"gguf": 5 << 30})
    standin.reactions["GET /v1/engines"] = as_json({"engines": [mapped, info("small")]})
    says = "5 GiB of gguf files are mapped, which Carpool does not move; to load them, llama.cpp: --load-mode none"
    assert f"llama: {says}" in carpool.ok("engine", "ls").splitlines()[-1]
    assert says in carpool.ok("engine", "show", "llama")
    assert "mapped" not in carpool.ok("engine", "show", "small")


def test_an_engine_of_another_user_is_shown(standin: StandIn, carpool: Cli) -> None:
    other = info(state="off") | {"owner": os.geteuid() + 1}
    standin.reactions["GET /v1/engines"] = as_json({"engines": [other]})
    assert "off" in carpool.ok("engine", "show", "llama")
    assert carpool("engine", "show", "llama", "--owner", str(os.geteuid())).returncode == Exit.NOT_FOUND
    standin.reactions["GET /v1/engines"] = as_json({"engines": [other, info()]})
    assert "ready" in carpool.ok("engine", "show", "llama")
    assert "ready" in carpool.ok("engine", "show", "llama", "--owner", pwd.getpwuid(os.geteuid()).pw_name)
    wrong = carpool("engine", "show", "llama", "--owner", "no one")
    assert wrong.returncode == Exit.USAGE and "this machine has no user 'no one': write a name or a uid" in wrong.stderr


class Serving:
    """A front, as the daemon sees it: it does what is wished after a look."""

    def __init__(self, standin: StandIn, *reports: dict[str, Any]) -> None:
        self.reports, self.wishes = [info(**report) for report in reports], 0
        for wish in ("start", "stop", "sleep"):
            standin.reactions[f"POST /v1/engines/llama/{wish}"] = self.wished
        standin.reactions["GET /v1/engines"] = self.listed

    def wished(self, request: Request) -> Answer:
        self.wishes += 1
        return as_json(self.reports[0])

    def listed(self, request: Request) -> Answer:
        report = self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        return as_json({"engines": [report]})


def test_a_start_is_waited_for(standin: StandIn, carpool: Cli) -> None:
    old = {"state": "off", "starts": 1, "reason": "of long ago"}
    Serving(standin, old, old, {"state": "starting", "starts": 2}, {"state": "ready", "starts": 2})
    assert carpool.ok("engine", "start", "llama") == "engine llama is ready\n"
    Serving(standin, old, {"state": "off", "starts": 2, "reason": "exit code 1"})
    refused = carpool("engine", "start", "llama")
    assert refused.returncode == Exit.FAILED and "engine llama does not start: exit code 1" in refused.stderr


def test_a_start_that_another_wish_has_replaced(standin: StandIn, carpool: Cli) -> None:
    off = {"state": "off", "starts": 1}
    serving = Serving(standin, *[off] * 12, {"state": "ready", "starts": 2})
    assert carpool.ok("engine", "start", "llama") == "engine llama is ready\n"
    assert serving.wishes == 2


def test_an_engine_that_was_starting_anyhow(standin: StandIn, carpool: Cli) -> None:
    Serving(standin, {"state": "starting", "starts": 2}, {"state": "off", "starts": 2, "reason": "exit code 1"})
    refused = carpool("engine", "start", "llama")
    assert refused.returncode == Exit.FAILED and "engine llama does not start: exit code 1" in refused.stderr


def test_an_engine_that_a_request_starts_again_at_once(standin: StandIn, carpool: Cli) -> None:
    Serving(standin, {"state": "ready", "starts": 2}, {"state": "ending", "starts": 2}, {"state": "ready", "starts": 3})
    assert carpool.ok("engine", "stop", "llama") == "engine llama was stopped, and a request has started it again\n"


def test_other_wishes(standin: StandIn, carpool: Cli) -> None:
    Serving(standin, {"state": "ready"}, {"state": "ending"}, {"state": "off"})
    assert carpool.ok("engine", "stop", "llama") == "engine llama is off\n"
    assert "its memory is moved out" in carpool.ok("engine", "sleep", "llama")
    standin.reactions["POST /v1/engines/lama/stop"] = problem(404, "unknown_engine", "no `carpool serve` has it")
    assert carpool("engine", "stop", "lama").returncode == Exit.NOT_FOUND
