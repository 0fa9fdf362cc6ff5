"""What `docs/verified.md` calls experimental is called so where users meet it."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest

from carpool.cli.commands.daemon import up
from carpool.cli.commands.jobs import submit
from tests.docs.test_pages import ROOT

#: Row of the table -> the help text of what it is about.
MET: dict[str, Callable[[], str]] = {
    "NCCL recognised": lambda: _help_of(submit.command, "gpus"),
    "instances of partitioned GPUs (MIG)": lambda: _help_of(up.command, "devices"),
    "`sharing = mps`": lambda: _help_of(up.command, "sharing"),
}


def _help_of(command: click.Command, name: str) -> str:
    (found,) = (option for option in command.params if option.name == name)
    assert isinstance(found, click.Option) and found.help is not None
    return found.help


def experimental() -> list[str]:
    return re.findall(r"^\| \*experimental:\* (.*?) \|", (ROOT / "docs" / "verified.md").read_text(), re.MULTILINE)


def test_all_of_them_are_met_somewhere() -> None:
    assert len(experimental()) == len(MET)


@pytest.mark.parametrize("row", MET)
def test_help_says_so(row: str) -> None:
    assert any(feature.startswith(row) for feature in experimental())
    assert "experimental" in MET[row]().lower()
