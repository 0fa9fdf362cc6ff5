"""Names, fields, order and defaults that version 0.1.0 had are still there."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pytest

from tests.corpus import surface

FROZEN = surface.stored()
HINT = "docs, other versions and users depend on this; tests/corpus/README.md says what a deliberate change needs"


def difference(frozen: Sequence[str], now: Sequence[str]) -> str:
    """Lines that have gone (-) and come (+); empty if there are none."""
    lines = difflib.unified_diff(frozen, now, "version 0.1.0", "now", n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return surface.surface()


@pytest.mark.parametrize("part", FROZEN)
def test_nothing_has_changed(part: str, now: dict[str, Any]) -> None:
    frozen, found = FROZEN[part], now[part]
    if isinstance(frozen, str):
        frozen, found = frozen.splitlines(), found.splitlines()
    assert not (changed := difference(frozen, found)), f"{part}:\n{changed}\n({HINT})"


def test_there_is_as_much_as_there_should_be(now: dict[str, Any]) -> None:
    assert now.keys() == FROZEN.keys()
    events, messages = FROZEN["events"], FROZEN["shim messages"]
    assert 'TurnPassed.to: {"type": "integer"}' in events and "from shim: register.attempt?: " in str(messages)
    assert len(events) > 300 and len(FROZEN["routes"]) > 900 and len(FROZEN["columns"]) > 90


def test_a_new_order_and_a_new_default_are_found() -> None:
    settings = FROZEN["settings"]
    swapped = [settings[1], settings[0], *settings[2:]]
    longer = [line.replace("20000", "30000") for line in settings]
    assert difference(settings, swapped) and "30000" in difference(settings, longer)
    assert not difference(settings, list(settings))
