"""How commands name jobs: ids, ranges, names, patterns, the last ones, and options; against a real daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from carpool.cli.base.job_words import Called, Elements, Last, Numbers, job_word
from tests.cli.conftest import Cli, Forks
from tests.cli.real import DEVICE, shared_daemon


@contextmanager
def five_jobs(forks: Forks) -> Iterator[Cli]:
    """Jobs 1 to 5: two that have ended, and three that go on."""
    with shared_daemon(forks, "--device", DEVICE, "--set", "kill_after_us=200ms") as cli:
        cli.ok("submit", "--name", "train-a", "--", "echo", "a")
        cli.ok("submit", "--name", "train-b", "--", "sh", "-c", "echo b; exit 3")
        assert cli("wait", "1-2").returncode == 3
        for name in ("train-b", "eval-x", ""):
            cli.ok("submit", *(["--name", name] if name else []), "--", "sleep", "600")
        while len(listed(cli, "--state", "running")) < 3:
            pass
        yield cli


@pytest.fixture(scope="module")
def shared(forks: Forks) -> Iterator[Cli]:
    """For those that change nothing."""
    with five_jobs(forks) as cli:
        yield cli


@pytest.fixture
def changed(forks: Forks) -> Iterator[Cli]:
    """For one that submits jobs, or ends them."""
    with five_jobs(forks) as cli:
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
        (["1-5", "--state", "succeeded, failed"], [1, 2]),
    ],
)
def test_what_ended_is_found(shared: Cli, words: list[str], ids: list[int]) -> None:
    assert waited(shared, *words) == ids


def test_one_job_by_its_name_or_as_the_last(shared: Cli) -> None:
    assert shared.ok("logs", "train-a") == "a\n"
    assert shared.ok("logs", "@~3") == "b\n"
    assert shared.show("@")["id"] == 5
    assert shared.show("sleep 600")["id"] == 5
    assert '"job":3' in shared.ok("events", "--json", "--job", "@~2")


def test_a_command_for_one_job_lists_several(shared: Cli) -> None:
    result = shared.fails(2, "logs", "train-b")
    assert "'train-b' names 2 jobs; this command takes one" in result
    assert "3 train-b (running), 2 train-b (failed (3))" in result


def listed(cli: Cli, *words: str) -> list[int]:
    return [job["id"] for job in json.loads(cli.ok("ls", "--json", *words))["jobs"]]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["2"], [2]),
        (["2-3"], [2, 3]),
        (["4,1"], [1, 4]),
        (["train-*"], [1, 2, 3]),
        (["train-*", "--state", "failed,running"], [2, 3]),
        (["train-*", "-n", "1"], [3]),
        (["@", "@~2"], [3, 5]),
        (["--name", "train-b"], [2, 3]),
        (["--name", "*-[abx]", "-n", "2"], [3, 4]),
        (["--user", str(os.getuid()), "--state", "failed"], [2]),
        (["--user", str(os.getuid())], [1, 2, 3, 4, 5]),
        (["--user", "4000001"], []),
        (["--user", "4000001", "--all"], []),
    ],
)
def test_ls_takes_the_same_words(shared: Cli, words: list[str], ids: list[int]) -> None:
    assert listed(shared, *words) == ids


def test_ls_of_what_is_not_there(shared: Cli) -> None:
    assert shared.ok("ls", "--user", "4000001") == "no jobs\n"
    assert "did you mean 'train-a'?" in shared.fails(4, "ls", "trian-a")
    assert shared("ls", "99").returncode == 4


def test_states_are_written_as_ls_prints_them(changed: Cli) -> None:
    late = changed.submit("--name", "late", "--time", "10ms", "--", "sleep", "600")
    held = changed.submit("--name", "held", "--hold", "--", "true")
    changed("wait", late)
    assert "timed out" in changed.ok("ls", late)
    for text in ("timed out", "timed-out", "timed_out", "Timed out,lost"):
        assert listed(changed, "--state", text) == waited(changed, late, "--state", text) == [int(late)]
        assert [use["id"] for use in json.loads(changed.ok("history", "--json", "--state", text))["jobs"]] == [
            int(late)
        ]
        assert late in changed.ok("clean", "--dry-run", "--state", text)
    changed.ok("pause", "5")
    assert listed(changed, "--state", "paused") == [5]
    assert listed(changed, "--state", "held") == [int(held)]
    assert changed.ok("resume", "--state", "paused").startswith("job 5 ")
    assert changed.ok("cancel", "--state", "held,paused").startswith(f"job {held} ")


def test_an_arrays_id_means_all_of_it_also_beside_options(changed: Cli) -> None:
    array = int(changed.ok("submit", "--name", "all-of-it", "--hold", "--array", "0-2", "--", "true"))
    every = [array, array + 1, array + 2]
    assert listed(changed, str(array)) == listed(changed, str(array), "--state", "queued") == every
    assert len(changed.ok("ls", str(array)).splitlines()) == 2, "one row"
    assert changed.ok("ls", f"{array}_1").splitlines()[1].split()[0] == f"{array}_1"
    changed.ok("cancel", str(array), "--state", "queued")
    assert waited(changed, f"{array}-{array + 2}") == every


def test_what_selects_nothing_says_what_there_is(shared: Cli) -> None:
    result = shared.fails(4, "cancel", "3", "trian-*")
    assert "no job of yours is selected by 'trian-*'" in result
    assert "there are: 5 sleep 600 (running), 4 eval-x (running), 3 train-b (running)" in result
    assert shared.show("3")["phase"] == "running"  # nothing is done by halves
    assert "no job is selected by '*'" in shared.fails(4, "cancel", "--user", "bin", "*")
    assert shared("show", "@~99").returncode == 4


def test_names_mean_what_can_still_be_cancelled(changed: Cli) -> None:
    assert changed.ok("cancel", "train-*").startswith("job 3 ")
    assert waited(changed, "3") == [3]
    ended = changed.fails(4, "cancel", "train-*")
    assert "'train-*'" in ended
    assert "there are: 5 sleep 600 (running), 4 eval-x (running)" in ended
    assert len(changed.ok("cancel", "--all", "--state", "running").splitlines()) == 2
    assert waited(changed, "4-5") == [4, 5]
    assert "there is no job of yours that has not ended" in changed("cancel", "--all").stderr


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("7", Numbers("7", ((7, 7),))),
        ("3-7,9", Numbers("3-7,9", ((3, 7), (9, 9)))),
        ("@", Last("@", 0)),
        ("@~12", Last("@~12", 12)),
        ("@_77", Last("@_77", 0, ((77, 77),))),
        ("@~2[0-3,9]", Last("@~2[0-3,9]", 2, ((0, 3), (9, 9)))),
        ("7_3", Elements("7_3", 7, ((3, 3),))),
        ("7[0,2-4]", Elements("7[0,2-4]", 7, ((0, 0), (2, 4)))),
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
