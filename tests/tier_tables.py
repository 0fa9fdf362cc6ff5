"""The tables of `tests/TIERS.md`: ``python -m tests.tier_tables`` writes them anew, a test checks them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.tiers import FOLDERS, LIST, TIERS, budget_s, cpu_budget_s

PAGE = Path(__file__).resolve().parent / "TIERS.md"
COMMANDS = {"check": "make check", "test": "make test", "all": "make test-all"}


def renewed(page: str) -> str:
    """The page with every table as it should be now.  Raises ValueError where its marks are missing."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- {name}: written by tests/tier_tables.py -->\n).*?(<!-- end -->)"
        page, count = re.subn(
            pattern, lambda match, table=table: f"{match[1]}\n{table()}\n{match[2]}", page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{PAGE.name} has lost the marks around its table of {name}")
    return page


def budgets() -> str:
    """Seconds by folder, where the folder's tests begin, and the part of `make test-all` that they are in."""
    rows = [
        f"| `tests/{name}` | `{COMMANDS[folder.first]}` | {folder.part} | {folder.budget_s} | {folder.cpu_s} |"
        for name, folder in FOLDERS.items()
    ]
    head = "tests | begins in | part | seconds of workers | of processors"
    return _table(head, [*rows, f"| together | | | {budget_s()} | {cpu_budget_s()} |"])


def limits() -> str:
    """What one test may take."""
    rows = [f"| `{COMMANDS[name]}` | {tier.cpu_s:g} s | {tier.wall_s:g} s |" for name, tier in TIERS.items()]
    return _table("tier | processor time of one test | until it is ended", rows)


def reasons() -> str:
    """Why tests are nightly, and how many of which files."""
    rows = [f"| {reason} | {', '.join(_counted(ids))} |" for reason, ids in listed(LIST.read_text())]
    return _table("why in `make test-all` only | tests", rows)


def _counted(ids: Iterable[str]) -> Iterator[str]:
    files = Counter(name.partition("::")[0] for name in ids)
    return (f"`{file}` {count}" for file, count in sorted(files.items()))


def listed(text: str) -> Iterator[tuple[str, list[str]]]:
    """The reasons of the list with their tests."""
    for paragraph in text.strip().split("\n\n")[1:]:
        reason, *ids = paragraph.splitlines()
        yield reason, [name.strip() for name in ids]


def _table(head: str, rows: Iterable[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + " --- |" * columns, *rows, ""])


TABLES: dict[str, Callable[[], str]] = {"limits": limits, "budgets": budgets, "reasons": reasons}

if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
