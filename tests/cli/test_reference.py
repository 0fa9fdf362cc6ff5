"""The generated parts of the docs say what the code says."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from carpool.cli.base.cli_error import MEANINGS, Exit
from carpool.cli.main import cli
from carpool.core.model import Settings
from carpool.protocol.api import TelemetryInfo

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(generate: ModuleType) -> None:
    pages = generate.pages()
    assert {"cli.md", "settings.md", "guide.md", "telemetry.md"} <= {path.name for path in pages}
    stale = [line for path, wanted in pages.items() for line in difference(path, wanted)]
    assert not stale, "\n".join(["run: python docs/generate.py", *stale])


def difference(path: Path, wanted: str) -> Iterator[str]:
    return difflib.unified_diff(path.read_text().splitlines(), wanted.splitlines(), path.name, "generated", n=0)


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    """The words by which each command is called."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, *path, name)


def too_wide(path: tuple[str, ...]) -> list[str]:
    """Lines of a command's help that a terminal of 80 columns does not hold."""
    said = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
    assert said.exit_code == 0, f"carpool {' '.join(path)} --help: {said.output}"
    return [line for line in said.output.splitlines() if len(line) > 80]


def test_help_fits_into_a_terminal_of_80_columns() -> None:
    paths = list(commands(cli))
    assert len(paths) > 30, "commands are looked for in the wrong place"
    wrong = [f"{' '.join(('carpool', *path))}: {line}" for path in paths for line in too_wide(path)]
    assert not wrong, "\n".join(wrong)


def test_every_setting_says_what_it_means(generate: ModuleType) -> None:
    page = generate.settings_page()
    for field in dataclasses.fields(Settings):
        if field.name not in generate.NOT_NUMBERS:
            (row,) = (line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
            assert len(row.rstrip(" |").split("|")) == 4, f"the field {field.name} has no comment behind it"


def test_what_the_driver_decides_is_no_setting(generate: ModuleType) -> None:
    page = generate.settings_page()
    assert "| `backfill` | none |" in page
    assert "`allocation`" not in page


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Exit)


def test_every_quantity_of_the_telemetry_says_what_it_is(generate: ModuleType) -> None:
    page = generate.telemetry_page((DOCS / "telemetry.md").read_text())
    for name in TelemetryInfo.__struct_fields__:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert len(row) > len(f"| `{name}` |  |"), f"the field {name} has no comment behind it"
