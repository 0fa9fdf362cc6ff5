"""Job files and grids with mistakes, for the real daemon: refused as a whole, told by line, and the queue goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.conftest import Cli

GOOD = '[[job]]\ncommand = "true"\n'
#: Contents of a file, and what is said about it after its name.
FILES: dict[str, tuple[bytes | str, str]] = {
    "not-toml": (f'{GOOD}[[job]]\ncommand = "true\n', ":4"),
    "twice": (f"{GOOD}retries = 1\nretries = 2\n", ":4"),
    "table-twice": ('command = "true"\n[param]\na = 1\n[param]\nb = 1\n', ":4"),
    "latin": (f"{GOOD}name = 'caf".encode() + b"\xe9'\n", ":3: the file is not UTF-8"),
    "empty": ("", ":1: the job has no command"),
    "no-jobs": ("job = []\n", ":1: the file has no jobs"),
    "no-program": (f'{GOOD}[[job]]\ncommand = "no-such-program"\n', ":4: there is no command 'no-such-program'"),
    "no-directory": (f'{GOOD}directory = "nowhere"\n', ":3: there is no directory"),
    "grid": ('command = "true"\nparam.lr = [0.1, 0.1]\n', ":2: param: the parameter lr has the value 0.1 twice"),
    "too-large": (f"{GOOD}iterations = {1 << 70}\n", ":3: iterations: "),
    "device": (f'{GOOD}[[job]]\nname = "b"\ncommand = "true"\ndevice = "gpu9"\n', "(b): there is no device 'gpu9'"),
}
SEVERAL = """
weight = "high"
[[job]]
command = "true"
comand = "true"
memory = 5

[[job]]
name = 7
"""
SEVERAL_TOLD = (
    ":2: weight: it must be a whole number, 1 or more",
    ":5: unknown key 'comand'; did you mean 'command'?",
    ":6: memory: '5' is not a size, because it has no unit: did you mean 5GiB?",
    ":8: the job has no command",
    ":9: name: it must be text",
)


def test_nothing_of_what_has_a_mistake_is_submitted(own_daemon: Cli, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = own_daemon.submit("--", "sh", "-c", f"read line < {gate}")
    queued = own_daemon.submit("--after", first, "true")
    for name, (content, said) in FILES.items():
        path = tmp_path / f"{name}.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        result = own_daemon("submit", path.name, cwd=tmp_path)
        assert (result.returncode in (2, 4, 5), result.stdout) == (True, ""), (name, result)
        assert (f"{path.name}{said}" if said[0] == ":" else said) in result.stderr, (name, result.stderr)
    (tmp_path / "folder.toml").mkdir()
    assert "folder.toml cannot be read: Is a directory" in own_daemon("submit", "folder.toml", cwd=tmp_path).stderr
    assert "has an empty value" in own_daemon.fails(2, "submit", "--param", "lr=1,,2", "true")
    gate.write_text("go\n")
    last = own_daemon.submit("true")
    assert own_daemon("wait", first, queued, last).returncode == 0
    assert [job["id"] for job in json.loads(own_daemon.ok("ls", "--all", "--json"))["jobs"]] == [1, 2, 3]


def test_all_mistakes_of_a_file_are_told_at_once(carpool: Cli, tmp_path: Path) -> None:
    (tmp_path / "several.toml").write_text(SEVERAL)
    result = carpool("submit", "several.toml", cwd=tmp_path)
    *lines, hint = result.stderr.removeprefix("carpool: ").splitlines()
    told = [f"several.toml{line}" for line in SEVERAL_TOLD]
    assert len(lines) == len(told) and all(map(str.startswith, lines, told)), result.stderr
    assert (result.returncode, hint) == (2, "  nothing has been submitted")
