"""Texts of other users reach no terminal raw, whatever command shows them."""

from __future__ import annotations

import msgspec
import pytest

from carpool.protocol.api import EventInfo, JobList, PlacementInfo, PlacementRow, ReasonInfo
from carpool.protocol.models import ModelInfo, ModelList
from tests.cli.conftest import Cli
from tests.cli.standin import Answer, StandIn, as_json, device, device_list, ended, job, load_of, problem

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
