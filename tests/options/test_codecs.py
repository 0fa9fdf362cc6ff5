"""Targets as they are typed, and what `show` says has become of them, with a real daemon."""

from __future__ import annotations

import pytest

from carpool.options.codecs import notify_events, notify_target
from carpool.options.table import KEYS


@pytest.mark.parametrize("text", ["exec:", "http://x/", "webhook:x", "exec:'a", "exec:''", "webhook:ftp://x/"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError):
        notify_target(text)


def test_events_are_some_of_four_and_a_wrong_guess_is_helped() -> None:
    assert notify_events("end,start,end") == ("end", "start")
    with pytest.raises(ValueError, match=r"did you mean.*failure"):
        notify_events("failures")


def test_a_job_file_says_the_same() -> None:
    (target,) = KEYS["notify"].type.toml("exec:mail me")  # type: ignore[misc]
    assert target.command == ["mail", "me"] and KEYS["notify_on"].type.toml(["end"]) == ("end",)
