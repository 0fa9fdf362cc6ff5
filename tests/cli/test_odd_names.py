"""Names with anything in them, all the way to the job; and texts of other users, which reach no terminal raw."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from carpool.protocol.api import EventInfo, JobList, PlacementInfo, PlacementRow, ReasonInfo
from carpool.protocol.models import ModelInfo, ModelList
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, StandIn, as_json, device, device_list, ended, job, load_of, problem

DIRECTORY = "a+b c'd\"e\nü%s$HOME;&"
SCRIPT = "träin +1 '\"\n{lr}.py"
#: Each as one word, as it stands.
ARGUMENTS = ["x+y z", "it's", 'say "hi"', "line\nbreak", "ü€😀", "", "$HOME", "*", "--name", "-n", "%d", "\\", "{a}"]
#: Fails the first time: a retry is to see the same.
TELLS = "import json, os, sys\nprint(json.dumps([*sys.argv, os.getcwd()]))\n"
FAILS_ONCE = "first = not os.path.exists('been here')\nopen('been here', 'w').close()\nsys.exit(first)\n"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    (directory / SCRIPT).write_text(TELLS + FAILS_ONCE)
    return directory


def toml(words: list[str]) -> str:
    """Strings of JSON are strings of TOML, but for characters that take two words of UTF-16."""
    return json.dumps(words, ensure_ascii=False)


def test_everything_arrives_as_it_was_given(own_daemon: Cli, odd: Path, tmp_path: Path) -> None:
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
        job = own_daemon.submit(*words, cwd=where)
        assert own_daemon("wait", job).returncode == 0, own_daemon.ok("logs", job)
        for attempt in ("1", "2"):
            assert json.loads(own_daemon.ok("logs", job, "--attempt", attempt)) == [SCRIPT, *ARGUMENTS, str(odd)]
        info = own_daemon.show(job)
        assert (info["cwd"], info["command"][1:], info["attempt"]) == (str(odd), [SCRIPT, *ARGUMENTS], 2)
        (odd / "been here").unlink()
    assert len(own_daemon.ok("ls", "--all").splitlines()) == 1 + len(ways), "one line each"
    assert "träin +1" in own_daemon.ok("show", "1")


ODD = "\x1b]0;owned\x07 \r\n7 all is well \x9b31m \u202e"
WHY = ReasonInfo("exit", ODD)
JOBS = [
    job(1, name=ODD, command=[ODD], cwd=ODD, reason=WHY, alone=ODD, immovable=ODD, phase="queued"),
    ended(2, "failed", exit_code=1, command=[ODD], reason=WHY, estimate_source=ODD),
]
MODEL = ModelInfo("m", 0, ODD, ODD, None, 1, 0, 1, ODD, ODD, 0, 1)
ROWS = [PlacementRow("host0", False, WHY, ReasonInfo("other", ODD), 1, 1, 1, [], [], None, [1])]
POLICY = {"name": "fair", "available": [], "settings": {}, "fault": ODD, "placement_fault": ODD, "placements": ["magm"]}


@pytest.fixture
def evil(standin: StandIn) -> StandIn:
    def answer(value: object) -> Answer:
        return Answer(msgspec.json.encode(value))

    standin.reactions |= {
        "GET /v1/jobs": answer(JobList(JOBS)),
        "GET /v1/devices": device_list(device([1])),
        "GET /v1/policy": as_json(POLICY),
        "GET /v1/models": answer(ModelList([MODEL])),
        "GET /v1/models/m": answer(MODEL),
        "GET /v1/events": Answer(msgspec.json.encode(EventInfo(1, 2, 3, "Submitted", 1, {"name": ODD})) + b"\n"),
        "GET /v1/jobs/1": answer(JOBS[0]),
        "GET /v1/jobs/2": answer(JOBS[1]),
        "GET /v1/jobs/2/wait": answer(JOBS[1]),
        "GET /v1/jobs/1/placement": answer(PlacementInfo(1, "magm", False, 5, ROWS)),
        "POST /v1/jobs/1/cancel": problem(409, "odd", ODD, ODD),
        **load_of("host0"),
    }
    return standin


@pytest.mark.parametrize(
    "words",
    [
        *("ls", "ls --all", "show 1", "show 2", "show 1 --why", "top --once", "events", "events --json", "wait 2"),
        *("policy", "model ls", "model show m", "cancel 1", "devices", "logs 1"),
    ],
)
def test_they_are_escaped(evil: StandIn, carpool: Cli, words: str) -> None:
    evil.reactions["GET /v1/jobs/1/logs"] = problem(403, "odd", ODD, ODD)
    result = carpool(*words.split())
    for line in (result.stdout + result.stderr).split("\n"):
        assert line.isprintable(), (words, line)
        assert not line.startswith("7 all is well"), words
    assert words == "devices" or "owned" in result.stdout + result.stderr
