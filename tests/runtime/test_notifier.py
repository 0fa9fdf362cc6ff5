"""What a process that tells somebody of an event answers, without a daemon."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.runtime import notifier


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({}, ""),
        ({"command": ["false"]}, "exit code 1"),
        ({"command": ["/no/such/program"]}, "No such file or directory"),
        ({"command": ["tr\0ue"]}, "embedded null byte"),
        ({"variables": {"CARPOOL_JOB_NAME": "a\0b"}}, "embedded null byte"),
    ],
)
def test_what_is_wrong_is_said(changed: dict[str, Any], answer: str) -> None:
    assert notifier._problem({"command": ["true"], "cwd": "/", "variables": {}} | changed) == answer
