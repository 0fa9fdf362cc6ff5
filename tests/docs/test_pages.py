"""The docs name only what exists: files, links, make targets, commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from carpool.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")] if path.is_file()
)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|c|h|md|toml|map))`")
#: Folders that the docs may leave out in front of a path.
PREFIXES = ("", "src/", "src/carpool/", "src/carpool/core/", "docs/", "benchmarks/")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as the usual Markdown renderers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_paths_in_code_style_exist(page: Path) -> None:
    paths = set(CODE_PATH.findall(page.read_text()))
    missing = [path for path in paths if not any((ROOT / prefix / path).exists() for prefix in PREFIXES)]
    # What programs write, and what a user's own project holds, does not exist here.
    assert [path for path in missing if not path.startswith(("./", "demo-out/", "results/", "jobs/"))] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_carpool_commands_and_their_options_exist(page: Path) -> None:
    wrong = []
    for line in re.findall(r"^\$? ?carpool ([a-z].*)$", page.read_text(), re.MULTILINE):
        words = re.split(r" -- | \| |#", line)[0].split()
        command = cli.get_command(click.Context(cli), words[0]) if words[0] in COMMANDS else None
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.commands.get(words[1])
        if command is None:
            wrong.append(line)
            continue
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        wrong += [line for word in words[1:] if word.startswith("-") and word.split("=")[0] not in known | {"--help"}]
    assert wrong == []


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
