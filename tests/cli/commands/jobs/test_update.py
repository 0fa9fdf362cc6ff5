"""`carpool update`, `requeue` and the options of time limits, as they are typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from carpool.cli.commands.jobs.update import changes
from carpool.cli.request.awaited_jobs import Words
from carpool.options.codecs import Dependencies, limit_signal
from carpool.options.table import UPDATES
from carpool.protocol.api import JobUpdate
from tests.cli.conftest import Cli


def as_ids(given: Sequence[Words]) -> list[Dependencies]:
    """Without a daemon."""
    return [(kind, tuple(int(word.text) for word in words)) for kind, words in given]


@pytest.mark.parametrize(
    ("words", "update"),
    [
        (["weight=200", "name=a=b"], JobUpdate(weight=200, name="a=b")),
        (["time=2h", "device-time=none"], JobUpdate(time_us=7_200_000_000, device_time_us=None)),
        (["signal=USR1@120"], JobUpdate(limit_signal=10, limit_signal_us=120_000_000)),
        (["after=any:3,4 notok:5"], JobUpdate(after=[], after_any=[3, 4], after_notok=[5])),
        (["after=none", "begin=none"], JobUpdate(after=[], after_any=[], after_notok=[], begin_us=None)),
        (["after=any:3,notok:5"], JobUpdate(after=[], after_any=[3], after_notok=[5])),
        (["device=host0,host1"], JobUpdate(device="host0,host1")),
    ],
)
def test_changes_are_read(words: list[str], update: JobUpdate) -> None:
    assert changes(words, as_ids) == update


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("weight", "is not NAME=VALUE"),
        ("wieght=3", "did you mean weight?"),
        ("priority=200", "'priority' to change; in Carpool: weight"),
        ("nice=5", "in Carpool: weight"),
        ("time=0", "time: '0' is too short: it must be more than 0"),
        ("weight=none", "is not a whole number"),
        ("time=soon", "is not a time"),
        ("signal=HUB", "is not a signal"),
        ("after=bad:3", "is not a way to end"),
    ],
)
def test_what_is_no_change_says_why(word: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        changes([word], as_ids)


def test_help_and_guide_name_all_that_can_be_changed(carpool: Cli) -> None:
    guide = (Path(__file__).parents[4] / "docs/guide.md").read_text()
    said = guide.partition("`update` takes ")[2].partition("\n\n")[0]
    for name in UPDATES:
        assert f"`{name}`" in said
        assert re.search(rf"[ ,]{name}[,.\s]", carpool.ok("update", "--help"))


@pytest.mark.parametrize("option", ["--time", "--device-time", "--expect"])
def test_a_limit_of_nothing_is_refused_by_the_options_name(carpool: Cli, option: str) -> None:
    result = carpool.fails(2, "submit", option, "0", "--", "true")
    assert f"'{option}': '0' is too short: it must be more than 0" in result and "_us" not in result


def test_signals_have_names_numbers_and_times() -> None:
    assert limit_signal("SIGUSR1") == limit_signal("10") == limit_signal("USR1@60s") == (10, 60_000_000)
    for wrong in ("", "0", "99", "USR9@5"):
        with pytest.raises(ValueError, match="is not a signal"):
            limit_signal(wrong)


def test_limits_are_submitted_shown_and_changed(shared: Cli) -> None:
    limits = ["--time", "2h", "--device-time", "30m", "--signal", "USR1@120", "--expect", "1h"]
    job = shared.submit("--hold", *limits, "--", "true")
    assert "2h00m, 30m00s of device time, SIGUSR1 2m00s before" in shared.ok("show", job)
    shared.ok("update", job, "time=90m", "signal=none", "name=renamed")
    shown = shared.show(job)
    assert (shown["time_us"], shown["limit_signal"], shown["name"]) == (5_400_000_000, 0, "renamed")
    assert shared("update", job, "color=red").returncode == 2
    shared.ok("cancel", job)
    assert "has ended" in shared("update", job, "name=x").stderr


def test_a_job_times_out_and_says_so(shared: Cli) -> None:
    job = shared.submit("--time", "100ms", "--", "sleep", "600")
    waited = shared("wait", job)
    assert waited.returncode == 128 + 15 and "timed out" in waited.stdout
    assert "reached its time limit of 0.1s" in shared.ok("ls", "--all")


def test_a_job_is_requeued(shared: Cli) -> None:
    job = shared.submit("--", "sleep", "600")
    assert shared("wait", job, "--timeout", "10ms").returncode == 6
    while "running" not in shared.ok("show", job):
        pass
    assert shared.ok("requeue", job).startswith(f"job {job} ")
    while "attempt 2" not in shared.ok("show", job):
        pass
    assert shared("wait", job, "--timeout", "10ms").returncode == 6
    shared.ok("cancel", job)
