"""Names with anything in them, all the way to the job: its script, its directory, its arguments, its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.real import DEVICE, SHORT_PAUSE, limited, stopped_afterwards

DIRECTORY = "a+b c'd\"e\nü%s$HOME;&"
SCRIPT = "träin +1 '\"\n{lr}.py"
#: Each as one word, as it stands.
ARGUMENTS = ["x+y z", "it's", 'say "hi"', "line\nbreak", "ü€😀", "", "$HOME", "*", "--name", "-n", "%d", "\\", "{a}"]
#: Fails the first time: a retry is to see the same.
TELLS = "import json, os, sys\nprint(json.dumps([*sys.argv, os.getcwd()]))\n"
FAILS_ONCE = "first = not os.path.exists('been here')\nopen('been here', 'w').close()\nsys.exit(first)\n"


@pytest.fixture
def server(carpool: Cli, home: Path) -> Iterator[Path]:
    with stopped_afterwards(carpool, home):
        limited(home, SHORT_PAUSE)
        carpool.ok("up", "--device", DEVICE)
        yield home


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    (directory / SCRIPT).write_text(TELLS + FAILS_ONCE)
    return directory


def toml(words: list[str]) -> str:
    """Strings of JSON are strings of TOML, but for characters that take two words of UTF-16."""
    return json.dumps(words, ensure_ascii=False)


def test_everything_arrives_as_it_was_given(server: Path, carpool: Cli, odd: Path, tmp_path: Path) -> None:
    beside = f"command = {toml([SCRIPT, *ARGUMENTS])}\nretries = 1\n"
    (odd / "jöb +'.toml").write_text(beside)
    (tmp_path / "above.toml").write_text(f"directory = {toml([DIRECTORY])[1:-1]}\n{beside}")
    ways = [
        (odd, ["--retries", "1", "--", SCRIPT, *ARGUMENTS]),
        (tmp_path, ["--retries", "1", "-D", DIRECTORY, "--", SCRIPT, *ARGUMENTS]),
        (tmp_path, [f"{DIRECTORY}/jöb +'.toml"]),
        (odd, ["../above.toml"]),
    ]
    for where, words in ways:
        job = carpool.ok("submit", *words, cwd=where).strip()
        assert carpool("wait", job).returncode == 0, carpool.ok("logs", job)
        for attempt in ("1", "2"):
            assert json.loads(carpool.ok("logs", job, "--attempt", attempt)) == [SCRIPT, *ARGUMENTS, str(odd)]
        info = json.loads(carpool.ok("show", job, "--json"))
        assert (info["cwd"], info["command"][1:], info["attempt"]) == (str(odd), [SCRIPT, *ARGUMENTS], 2)
        (odd / "been here").unlink()
    assert len(carpool.ok("ls", "--all").splitlines()) == 1 + len(ways), "one line each"
    assert "träin +1" in carpool.ok("show", "1")
