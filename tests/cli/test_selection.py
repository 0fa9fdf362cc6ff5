"""How commands name jobs: ids, ranges, names, patterns, the last ones, and options; against a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from conftest import Cli, Forks
from real import DEVICE, shared_daemon

from carpool.cli.base.job_words import Called, Last, Numbers, job_word


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    """Jobs 1 to 5: two that have ended, and three that go on."""
    with shared_daemon(forks, "--device", DEVICE, "--set", "kill_after_us=200ms") as cli:
        cli.ok("submit", "--name", "train-a", "--", "echo", "a")
        cli.ok("submit", "--name", "train-b", "--", "sh", "-c", "echo b; exit 3")
        assert cli("wait", "1-2").returncode == 3
        for name in ("train-b", "eval-x", ""):
            cli.ok("submit", *(["--name", name] if name else []), "--", "sleep", "600")
        yield cli


def waited(cli: Cli, *words: str) -> list[int]:
    """The ids that `wait` was about, for jobs that have ended."""
    result = cli("wait", "--json", *words)
    assert result.stdout, result.stderr
    return [job["id"] for job in json.loads(result.stdout)["jobs"]]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["2", "1", "2"], [2, 1]),
        (["1-2"], [1, 2]),
        (["1,2"], [1, 2]),
        (["train-a"], [1]),
        (["train-*", "--state", "ended"], [1, 2]),
        (["--state", "failed"], [2]),
        (["--state", "succeeded,failed", "--name", "*-b"], [2]),
        (["@~4"], [1]),
        (["1-5", "--state", "succeeded", "--user", "*"], [1]),
    ],
)
def test_what_ended_is_found(shared: Cli, words: list[str], ids: list[int]) -> None:
    assert waited(shared, *words) == ids


def test_one_job_by_its_name_or_as_the_last(shared: Cli) -> None:
    assert shared.ok("logs", "train-a") == "a\n"
    assert shared.ok("logs", "@~3") == "b\n"
    assert json.loads(shared.ok("show", "--json", "@"))["id"] == 5
    assert json.loads(shared.ok("show", "--json", "sleep 600"))["id"] == 5
    assert '"job":3' in shared.ok("events", "--json", "--job", "@~2")


def test_a_command_for_one_job_lists_several(shared: Cli) -> None:
    result = shared("logs", "train-b")
    assert result.returncode == 2
    assert "'train-b' names 2 jobs, and one is wanted" in result.stderr
    assert "3 train-b (running), 2 train-b (failed (3))" in result.stderr


def test_what_selects_nothing_says_what_there_is(shared: Cli) -> None:
    result = shared("cancel", "3", "trian-*")
    assert result.returncode == 4
    assert "no job of yours is selected by 'trian-*'" in result.stderr
    assert "there are: 5 sleep 600 (running), 4 eval-x (running), 3 train-b (running)" in result.stderr
    assert json.loads(shared.ok("show", "--json", "3"))["phase"] == "running"  # nothing is done by halves
    others = shared("cancel", "--user", "bin", "*")
    assert others.returncode == 4
    assert "no job is selected by '*'" in others.stderr
    assert shared("show", "@~5").returncode == 4


def test_names_mean_what_can_still_be_cancelled(shared: Cli) -> None:
    """Last in this file, as it ends the jobs."""
    assert shared.ok("cancel", "train-*").startswith("job 3 ")
    assert waited(shared, "3") == [3]
    ended = shared("cancel", "train-*")
    assert ended.returncode == 4
    assert "'train-*'" in ended.stderr
    assert "there are: 5 sleep 600 (running), 4 eval-x (running)" in ended.stderr
    assert len(shared.ok("cancel", "--all", "--state", "running").splitlines()) == 2
    assert waited(shared, "4-5") == [4, 5]
    assert "there is no job of yours that has not ended" in shared("cancel", "--all").stderr


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("7", Numbers("7", ((7, 7),))),
        ("3-7,9", Numbers("3-7,9", ((3, 7), (9, 9)))),
        ("@", Last("@", 0)),
        ("@~12", Last("@~12", 12)),
        ("3-x", Called("3-x")),
        ("lr=0.1,bs=3", Called("lr=0.1,bs=3")),
    ],
)
def test_words(text: str, word: object) -> None:
    assert job_word(text) == word


@pytest.mark.parametrize(
    ("text", "said"),
    [("0", "ids begin with 1"), ("7-3", "smaller id first"), ("@1", "@~1 the one before"), ("", "empty word")],
)
def test_words_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        job_word(text)
