"""What is typed for when a job may start, `hold` and `release`, `pause` and `resume`."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from carpool.cli.base.job_words import job_word
from carpool.cli.request.awaited_jobs import after
from carpool.core.model import Dependency
from carpool.options.codecs import begin_time
from carpool.protocol.display import user_name
from tests.cli.conftest import Cli

NOON = datetime.fromisoformat("2026-03-05T12:00").astimezone()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("22:00", "2026-03-05T22:00:00"),
        ("12:00", "2026-03-06T12:00:00"),
        ("07:30:15", "2026-03-06T07:30:15"),
        ("2026-03-07", "2026-03-07T00:00:00"),
        ("2026-03-06T08:15", "2026-03-06T08:15:00"),
        ("2026-03-05T12:00", "2026-03-05T12:00:00"),
    ],
)
def test_a_time_to_begin_is_the_next_one(text: str, moment: str) -> None:
    assert begin_time(text, NOON) == int(datetime.fromisoformat(moment).timestamp()) * 1_000_000


def test_a_delay_counts_from_now() -> None:
    assert abs(begin_time("+2h") - time.time_ns() // 1000 - 7_200_000_000) < 5_000_000


@pytest.mark.parametrize("text", ["", "25:00", "tomorrow", "+", "+2x", "2026-13-01", "22", "2230", "7"])
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        begin_time(text, NOON)


@pytest.mark.parametrize("text", ["2026-03-05", "2026-03-04T08:15", "2026-03-05T11:59:59"])
def test_a_date_that_is_past_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is past: write for example"):
        begin_time(text, NOON)


def test_dependencies_name_how_jobs_end() -> None:
    assert after("3,4") == after("ok:3,4") == ((Dependency.OK, (job_word("3"), job_word("4"))),)
    assert after("notok:7[0,2],train") == ((Dependency.NOTOK, (job_word("7[0,2]"), job_word("train"))),)
    both = ((Dependency.OK, (job_word("57"), job_word("3"))), (Dependency.ANY, (job_word("58"),)))
    for text in ("ok:57,3 any:58", "ok:57,3,any:58", "57,3, any:58"):
        assert after(text) == both
    assert after("any:sleep 600") == ((Dependency.ANY, (job_word("sleep 600"),)),), "a name may have spaces"
    with pytest.raises(ValueError, match=r"'failed' is not a way to end: write ok:3 .*notok:3"):
        after("failed:3")


def awaited(cli: Cli, job: object) -> list[list[int]]:
    """The jobs whose success, whose end and whose failure it waits for."""
    shown = cli.show(job)
    return [shown["after"], shown["after_any"], shown["after_notok"]]


def test_jobs_are_awaited_by_any_word_that_names_jobs(shared: Cli) -> None:
    held = [shared.submit("--hold", "--name", name, "--", "true") for name in ("prepare", "split")]
    grid = shared.submit("--hold", "--param", "n=1,2", "--", "true")
    words = ("--after", "ok:prepare", "--after", "any:@~1,spl*", "--after", f"notok:{grid}")
    waits = shared.submit(*words, "--", "true")
    whole_array = [int(grid), int(grid) + 1]
    assert awaited(shared, waits) == [[int(held[0])], [int(held[1])], whole_array]
    assert "did you mean 'prepare'?" in shared.fails(4, "submit", "--after", "prepere", "--", "true")
    shared.ok("update", waits, f"after=any:{held[0]}-{held[1]}")
    assert awaited(shared, waits) == [[], list(map(int, held)), []]
    shared.ok("cancel", "--all")
    shared("wait", waits)


def test_jobs_are_held_and_released(shared: Cli) -> None:
    first, second = (shared.submit("--hold", "--", "true") for _ in range(2))
    assert "held by" in shared.ok("show", first)
    released = json.loads(shared.ok("release", first, second, "--json"))["jobs"]
    assert [(job["id"], job["error"]) for job in released] == [(int(first), None), (int(second), None)]
    assert shared("wait", first, second).returncode == 0
    assert "has ended" in shared("hold", first).stderr
    assert shared("release", "999").returncode == 4


def test_options_reach_the_daemon(shared: Cli) -> None:
    first = shared.submit("--hold", "--", "true")
    job = shared.submit("--after", f"any:{first}", "--after", f"notok:{first}", "--begin", "+2h", "true")
    assert awaited(shared, job) == [[], [int(first)], [int(first)]]
    again = shared.submit("--after", f"any:{first} notok:{first}", "--after", f"any:{job}", "true")
    assert awaited(shared, again) == [[], [int(first), int(job)], [int(first)]]
    shared.ok("update", again, f"after=any:{job},notok:{first}")
    assert awaited(shared, again) == [[], [int(job)], [int(first)]]
    shared.ok("cancel", again)
    assert shared.show(job)["begin_us"] > time.time_ns() // 1000
    assert f"any:{first}, notok:{first}" in shared.ok("show", job)
    assert "not a way to end" in shared("submit", "--after", "bad:1", "true").stderr
    shared.ok("cancel", job, first)


def test_a_job_file_says_the_same(shared: Cli, tmp_path: Path) -> None:
    held = shared.submit("--hold", "--", "true")
    file = tmp_path / "jobs.toml"
    file.write_text(f"""
[[job]]
name = "train"
command = "true"
hold = true
begin = "+1h"
[[job]]
command = "true"
after = ["any:train", "notok:{held}"]
""")
    train, last = shared.ok("submit", str(file)).split()
    assert awaited(shared, last) == [[], [int(train)], [int(held)]]
    shown = shared.show(train)
    assert shown["held_by"] is not None and shown["begin_us"] is not None
    file.write_text(file.read_text().replace("any:train", "any:trian"))
    assert "no job above this one is called 'trian'" in shared("submit", str(file)).stderr
    shared.ok("cancel", last, train, held)


def ids(output: str) -> list[int]:
    return [job["id"] for job in json.loads(output)["jobs"]]


def test_jobs_are_paused_and_resumed(shared: Cli) -> None:
    first, second = (shared.submit("--", "sleep", "600") for _ in range(2))
    held = shared.submit("--hold", "--", "true")
    assert shared.ok("pause", first) == f"job {first} paused\n"
    listed = shared.ok("ls")
    assert "paused" in listed and f"paused by {user_name(os.getuid())}" in shared.ok("show", first)
    assert ids(shared.ok("pause", "--all", "--json")) == [int(second), int(held)], "not the one that is paused already"
    assert ids(shared.ok("resume", "--user", user_name(os.getuid()), "--json")) == [int(first), int(second), int(held)]
    assert "no job of yours is selected" in shared("resume", "--all").stderr
    assert "is not paused" in shared("resume", first).stderr
    shared.ok("cancel", first, second, held)
