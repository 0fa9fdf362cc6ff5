"""carpool events: which events are shown, in which words, from which moment on."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any, get_args
from urllib.parse import parse_qsl

import msgspec
import pytest

from carpool.cli.base.time_arguments import past_moment_us
from carpool.cli.render import formatting
from carpool.cli.render.event_words import TELEMETRY, WORDS, event_line, happened
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.protocol.api import EventInfo
from carpool.protocol.packets import readable
from tests.cli.conftest import PATIENCE_S, Cli
from tests.cli.standin import Answer, Request, StandIn, as_json, device, device_list, job

SECOND = 1_000_000


def event(seq: int, kind: str = "GrantTurn", number: int | None = 1, **data: Any) -> EventInfo:
    return EventInfo(seq, seq * SECOND, seq, kind, number, data or {"job": number, "lane": 1})


class Journal:
    """The stand-in's events, in pages as the daemon gives them."""

    def __init__(self, standin: StandIn, events: list[EventInfo]) -> None:
        self.events, self.standin = events, standin
        standin.reactions["GET /v1/events"] = self.answer

    def answer(self, request: Request) -> Answer:
        asked = dict(parse_qsl(request.query))
        found = [one for one in self.events if one.seq > int(asked.get("since", 0))]
        if "limit" in asked:
            found = [one for one in found if one.seq < int(asked.get("before", 1 << 60))][-int(asked["limit"]) :]
        return Answer(b"".join(msgspec.json.encode(one) + b"\n" for one in found))


def seen(carpool: Cli, *options: str) -> list[int]:
    return [json.loads(line)["seq"] for line in carpool.ok("events", "--json", *options).splitlines()]


def test_the_last_ones_are_shown(standin: StandIn, carpool: Cli) -> None:
    Journal(standin, [event(seq) for seq in range(1, 3001)])
    assert seen(carpool) == list(range(2981, 3001))
    assert seen(carpool, "-n", "3") == [2998, 2999, 3000]
    assert seen(carpool, "-n", "0") == []
    assert seen(carpool, "--after-seq", "0") == list(range(1, 3001))
    assert seen(carpool, "--after-seq", "2990", "-n", "2") == [2999, 3000]
    assert len(standin.requests) == 1 + 1 + 1 + 4 + 1  # the journal is read only as far back as is needed


def test_measurements_are_shown_on_request(standin: StandIn, carpool: Cli) -> None:
    Journal(standin, [event(1), event(2, "Sampled"), event(3, "DeviceLoad", None), event(4, "EndJob")])
    assert seen(carpool) == [1, 4]
    assert seen(carpool, "--all") == [1, 2, 3, 4]
    assert seen(carpool, "--kind", "sampled", "--kind", "EndJob") == [2, 4]


def test_events_of_a_job_and_of_a_device(standin: StandIn, carpool: Cli) -> None:
    Journal(standin, [
        event(1, "DeviceAdded", None, device={"id": "host1"}),
        event(2, "StartJob", 7, device="host0"),
        event(3, "TurnPassed", 1, to=2),
        event(4, "CloseLane", None, lane=1),
        event(5, "CloseLane", None, lane=9),
        event(6, "SettingsChanged", None, settings={}),
        event(7, "AllocateDevices", 8, devices=["host1", "host0"]),
    ])  # fmt: skip
    standin.reactions |= {
        "GET /v1/devices": device_list(device([1, 2])),
        "GET /v1/jobs": as_json({"jobs": [msgspec.to_builtins(job(1)), msgspec.to_builtins(job(5, device=None))]}),
    }
    assert seen(carpool, "--job", "2") == [3]
    assert seen(carpool, "--device", "host0") == [2, 3, 4, 7]
    assert "known devices: host0" in carpool.fails(4, "events", "--device", "host7")


def test_events_since_a_time(standin: StandIn, carpool: Cli) -> None:
    now = formatting.now_us()
    Journal(standin, [EventInfo(n, now - (3 - n) * 600 * SECOND, n, "EndJob", 1, {}) for n in (1, 2, 3)])
    assert seen(carpool, "--since", "11m") == [2, 3]
    assert seen(carpool, "--since", "10s") == [3]
    then = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now / 1e6 - 630))
    assert seen(carpool, "--since", then, "-n", "1") == [3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "submited"], "did you mean Submitted?"),
        (["--kind", "zzz"], "kinds are Adopted"),
        (["--since", "25:70"], "is not a time: write a time such as 14:05"),
        (["--since", "2999-01-01 10:00"], "is in the future"),
        (["-n", "-1"], "must be 0 or more"),
    ],
)
def test_wrong_words_are_explained(standin: StandIn, carpool: Cli, options: list[str], said: str) -> None:
    assert said in carpool.fails(2, "events", *options)


def test_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = int(time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1)))
    monkeypatch.setattr(formatting, "now_us", lambda: noon * SECOND)
    found = {text: past_moment_us(text) // SECOND - noon for text in ("11:59", "10m", "1.5h", "12:01", "11:59:30")}
    assert found == {"11:59": -60, "10m": -600, "1.5h": -5400, "12:01": 60 - 86_400, "11:59:30": -30}
    assert past_moment_us("2026-01-30 12:00") // SECOND == noon - 86_400
    assert past_moment_us("2026-01-31") // SECOND == noon - 43_200


def test_every_kind_has_words() -> None:
    kinds = {kind.__name__ for kind in (*get_args(Event), *get_args(Command))}
    assert WORDS.keys() == kinds and kinds > TELEMETRY


def test_words() -> None:
    told = {
        "Submitted": ({"spec": {"name": "vae", "after": [1, 2]}}, "submitted as vae, after 1, 2"),
        "MemoryRequested": (
            {"total": 3 << 20, "memory_class": "ephemeral"},
            "asks for 3 MiB of ephemeral memory in all",
        ),
        "ProcessExited": ({"code": None, "signal": 9}, "the process ended by SIGKILL"),
        "TurnPassed": ({"to": 2, "cause": "boundary"}, "handed its turn to job 2 at the end of an iteration"),
        "EndJob": ({"outcome": "failed", "reason": {"code": "exit", "text": "exit code 3"}}, "failed: exit code 3"),
    }
    assert {kind: happened(event(1, kind, **data)) for kind, (data, _) in told.items()} == {
        kind: words for kind, (_, words) in told.items()
    }


def test_what_is_hidden_or_of_another_version_is_shown_as_far_as_it_is_known() -> None:
    assert happened(EventInfo(1, 1, 1, "Submitted", 1, {})) == "Submitted"
    assert happened(event(1, "Teleported", planet="red dwarf", crew=4)) == 'Teleported planet="red dwarf" crew=4'


def test_days_other_than_today_are_named() -> None:
    now = formatting.now_us()
    today, earlier = (EventInfo(1, then, 1, "CloseLane", None, {"lane": 3}) for then in (now, now - 86_400 * SECOND))
    assert event_line(today, now)[:2] == time.strftime("%H", time.localtime(now / 1e6))
    assert event_line(earlier, now).startswith(time.strftime("%m-%d ", time.localtime(now / 1e6 - 86_400)))
    assert event_line(today, now).endswith("  lane 3    closed")


def test_a_real_daemons_events_have_words(shared: Cli) -> None:
    job = shared.submit("--name", "quick", "true")
    shared.ok("wait", job)
    lines = shared.ok("events", "--after-seq", "0").splitlines()
    assert any(line.endswith("host0     was added, with 64 MiB") for line in lines)
    mine = [line.split(f"job {job}")[1].strip() for line in shared.ok("events", "--job", job).splitlines()]
    assert mine[0] == "submitted as quick" and mine[1].startswith("starts on host0, lane ")
    assert mine[-1].startswith("succeeded")
    assert not {line.split("  ")[-1].split()[0] for line in lines} & WORDS.keys()
    everything = seen(shared, "--after-seq", "0", "--all")
    newest = seen(shared, "--all", "-n", "2")  # the device is measured meanwhile, too
    assert everything == sorted(set(everything))
    assert newest == [newest[0], newest[0] + 1] and newest[1] >= everything[-1]


def test_following_goes_on_after_the_last_event_that_was_shown(shared: Cli) -> None:
    process = shared.start(["events", "-f", "-n", "1", "--json", "--all"], stdout=subprocess.PIPE)
    numbers: list[int] = []
    try:
        for told in _told(process):
            if not numbers:  # that is the past; all else is still to come
                job = int(shared.ok("submit", "true"))
            numbers.append(told["seq"])
            if (told["kind"], told["job"]) == ("EndJob", job):
                break
    finally:
        process.kill()
        process.communicate()
    assert len(numbers) > 5 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _told(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What the command prints, line by line as it comes."""
    deadline, rest = time.monotonic() + PATIENCE_S, b""
    while time.monotonic() < deadline:
        if readable(process.stdout.fileno(), 1.0):
            *lines, rest = (rest + os.read(process.stdout.fileno(), 65536)).split(b"\n")
            yield from map(json.loads, lines)
    raise AssertionError("nothing more came")
