"""`carpool --help`: what is needed every day comes first, the rest in groups."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from carpool.cli import commands
from carpool.cli.main import COMMANDS, GROUPS, cli, command_name
from tests.cli.conftest import Cli

DAILY = ("submit", "run", "ls", "show", "logs", "wait", "cancel", "retry", "history", "top")


def test_the_ten_commands_of_every_day_come_first_and_every_command_is_in_one_group() -> None:
    assert list(GROUPS) == ["Every day", "Jobs", "Devices", "Models", "Administration", "Integration"]
    assert tuple(map(command_name, GROUPS["Every day"])) == DAILY and len(COMMANDS) == sum(map(len, GROUPS.values()))
    (folder,) = map(Path, commands.__path__)
    found = {f"{path.parent.name}.{path.stem}" for path in folder.glob("*/*.py") if path.stem != "__init__"}
    assert {place.partition(":")[0] for places in GROUPS.values() for place in places} == found


def test_the_help_has_a_heading_for_each_group_and_one_column_of_names() -> None:
    lines = CliRunner().invoke(cli, ["--help"], terminal_width=80).output.splitlines()
    start = lines.index("Every day:")
    assert [line.split()[0] for line in lines[start + 1 : start + 11]] == list(DAILY)
    assert [line.rstrip(":") for line in lines[start:] if line and line[0] != " "] == list(GROUPS)
    rows = [line for line in lines[start:] if line.startswith("  ")]
    assert [row.split()[0] for row in rows] == list(COMMANDS)
    assert {len(row) - len(row[2:].partition(" ")[2].lstrip()) for row in rows} == {len("  install-unit  ")}


def test_an_unknown_command_does_not_bring_a_list_of_all(carpool: Cli) -> None:
    refused = carpool.fails(2, "frobnicate")
    assert "carpool --help lists them" in refused
    assert "log-level" not in refused
