"""The docs name only what exists: files, links, make targets, commands."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from carpool.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|c|h|md|toml|map))`")
#: Folders that the docs may leave out in front of a path.
PREFIXES = ("", "src/", "src/carpool/", "src/carpool/core/", "docs/", "benchmarks/")
#: What programs write, and what a user's own project holds, does not exist here.
ELSEWHERE = ("./", "demo-out/", "results/", "jobs/")


@functools.cache
def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    return sorted(path for path in found if path.is_file())


@functools.cache
def text(page: Path) -> str:
    return page.read_text()


def on_no_page(wrong: Callable[[Path], list[str]]) -> None:
    """Fails with all that is wrong, on all pages."""
    assert len(pages()) > 100, "the docs are looked for in the wrong place"
    found = [f"{page.relative_to(ROOT)}: {one}" for page in pages() for one in wrong(page)]
    assert not found, "\n".join(found)


@functools.cache
def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as the usual Markdown renderers make them."""
    headings = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    targets = (target for target in LINK.findall(text(page)) if "://" not in target)
    return [target for target in targets if not target.startswith("mailto:") and not leads_somewhere(page, target)]


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))


def missing_paths(page: Path) -> list[str]:
    paths = sorted(set(CODE_PATH.findall(text(page))))
    missing = [path for path in paths if not any((ROOT / prefix / path).exists() for prefix in PREFIXES)]
    return [path for path in missing if not path.startswith(ELSEWHERE)]


@functools.cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def missing_targets(page: Path) -> list[str]:
    return sorted(set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text(page), re.MULTILINE)) - make_targets())


def wrong_commands(page: Path) -> list[str]:
    """Commands and options that do not exist, each with its line."""
    lines = re.findall(r"^\$? ?carpool ([a-z].*)$", text(page), re.MULTILINE)
    return [f"{word} in {line!r}" for line in lines for word in wrong_in(line)]


def wrong_in(line: str) -> Iterator[str]:
    words = re.split(r" -- | \| |#", line)[0].split()
    command = command_of(words)
    if command is None:
        yield words[0]
        return
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    yield from (word for word in words[1:] if word.startswith("-") and word.split("=")[0] not in known | {"--help"})


@functools.cache
def every_option() -> set[str]:
    return {option for command in every_command(cli) for parameter in command.params for option in parameter.opts}


def every_command(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for found in (command.get_command(context, name) for name in command.list_commands(context)):
            assert found is not None
            yield from every_command(found)


def unknown_letters(page: Path) -> list[str]:
    """Options of one letter, in code style, that no command has; only guides: decisions name those of others."""
    guides = page.parent == ROOT / "docs" or page.name == "README.md"
    return sorted({*re.findall(r"`(-[A-Za-z])`", text(page))} - every_option()) if guides else []


def command_of(words: list[str]) -> click.Command | None:
    command = cli.get_command(click.Context(cli), words[0]) if words[0] in COMMANDS else None
    if isinstance(command, click.Group) and len(words) > 1:
        return command.commands.get(words[1])
    return command


def test_links_lead_somewhere() -> None:
    on_no_page(broken_links)


def test_paths_in_code_style_exist() -> None:
    on_no_page(missing_paths)


def test_make_targets_exist() -> None:
    on_no_page(missing_targets)


def test_carpool_commands_and_their_options_exist() -> None:
    on_no_page(wrong_commands)


def test_options_of_one_letter_exist() -> None:
    on_no_page(unknown_letters)


def test_the_readme_needs_two_commands_and_ci_runs_its_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme and "make test" in readme
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_every_decision_has_context_choice_and_consequences() -> None:
    decisions = sorted(ROOT.glob("docs/decisions/[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in decisions]
    assert len(numbers) >= 4 and numbers == sorted(set(numbers))
    for path in decisions:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", path.read_text(), re.MULTILINE)
        assert parts == ["Context", "Choice", "Consequences"], path.name
