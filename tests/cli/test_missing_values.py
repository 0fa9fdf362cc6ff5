"""What people read where the daemon does not know a value: never Python's None, never JSON's null."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator

import msgspec
import pytest

from carpool.cli.render.event_words import WORDS, happened
from carpool.core import commands, events
from carpool.protocol import api
from carpool.protocol.models import ModelInfo, ModelList
from carpool.protocol.notices import NoticeList
from tests.bare_values import bare, bare_jobs
from tests.cli.rendered import run
from tests.cli.standin import Answer, Request, StandIn

MISSING = re.compile(r"\b(None|null|nan|NaN|undefined)\b")
COMMANDS = (
    *("ls --all", "history", "usage", "limits", "set", "top --once", "devices", "devices host0 --history 2m"),
    *("model ls", "model show m", "policy", "events --all"),
)


JOBS = bare_jobs()


@pytest.fixture
def bare_daemon(standin: StandIn) -> StandIn:
    def listed(request: Request) -> Answer:
        wanted = request.query.partition("phase=")[2].partition("&")[0].split(",")
        return answer(api.JobList([job for job in JOBS if wanted == [""] or job.phase in wanted]))

    device = bare(api.DeviceInfo, id="host0")
    past = bare(api.TelemetryHistory, step_us=1)
    days = api.UsageHistory(0, 0, [bare(api.UserDay)], [bare(api.DeviceDay)])
    model = bare(ModelInfo, owner=1000)
    standin.reactions |= {
        "GET /v1/jobs": listed,
        "GET /v1/devices": answer(api.DeviceList([device], bare(api.StoreInfo))),
        "GET /v1/devices/host0/telemetry": answer(past),
        "GET /v1/policy": answer(bare(api.PolicyInfo, settings=dict.fromkeys(("quantum_us", "max_lanes")))),
        "GET /v1/limits": answer(bare(api.UserLimitsInfo)),
        "GET /v1/usage": answer(days),
        "GET /v1/models": answer(ModelList([model])),
        "GET /v1/models/m": answer(model),
        "GET /v1/events": Answer(b"".join(msgspec.json.encode(event) + b"\n" for event in missing_events())),
    }
    for job in JOBS:
        at = f"GET /v1/jobs/{job.id}"
        standin.reactions |= {at: answer(job), f"{at}/wait": answer(job), f"{at}/notices": answer(bare(NoticeList))}
        standin.reactions[f"{at}/placement"] = answer(bare(api.PlacementInfo))
    return standin


def answer(value: object) -> Answer:
    return Answer(msgspec.json.encode(value))


def missing_events() -> Iterator[api.EventInfo]:
    """Of each kind one in which everything is null that may be, and one of which all is withheld, but for these."""
    kinds = {kind.__name__: kind for kind in (*typing.get_args(events.Event), *typing.get_args(commands.Command))}
    for seq, name in enumerate(WORDS, 1):
        data = msgspec.to_builtins(bare(kinds[name]))
        nulls = {field: value for field, value in data.items() if value is None}
        for number, told in enumerate((data, nulls, {})):
            yield api.EventInfo(3 * seq + number, 1, 1, name, told.get("job"), told)


@pytest.mark.parametrize("words", [*COMMANDS, *(f"show {job.id}" for job in JOBS), "show 1 --why", "wait 9"])
def test_what_is_missing_is_left_out_or_a_dash(bare_daemon: StandIn, words: str) -> None:
    said = run(bare_daemon, tuple(words.split()), {"COLUMNS": "400"}, True)
    assert len(said) > 5 and "Traceback" not in said
    assert MISSING.search(said) is None, said


def test_each_kind_of_event_is_told_without_what_is_missing() -> None:
    told = [happened(event) for event in missing_events()]
    assert [line for line in told if MISSING.search(line)] == []
