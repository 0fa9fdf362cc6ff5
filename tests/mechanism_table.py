"""The table of mechanisms in docs/verified.md: ``python -m tests.mechanism_table`` writes it, a test checks it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mechanisms import CHEAP, MECHANISMS, RIGS, Mechanism

PAGE = Path(__file__).resolve().parent.parent / "docs" / "verified.md"


def renewed(page: str) -> str:
    """The page with the table as it should be now.  Raises ValueError where its marks are missing."""
    pattern = r"(<!-- mechanisms: written by tests/mechanism_table.py -->\n).*?(<!-- end -->)"
    page, count = re.subn(pattern, lambda match: f"{match[1]}\n{table()}\n{match[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE.name} has lost the marks around its table of mechanisms")
    return page


def table() -> str:
    """Rows with letters for reasons that several rows have, and below them what the letters mean."""
    head = ["mechanism", *RIGS.values(), "why more than one rig stays"]
    letters = _letters()
    lines = [head, ["---"] * len(head), *(_cells(row, letters) for row in MECHANISMS)]
    meanings = "".join(f"- *{letter}*: {reason}\n" for reason, letter in letters.items())
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{meanings}"


def _letters() -> dict[str, str]:
    counts = Counter(reason for row in MECHANISMS for reason in _reasons(row))
    return dict(zip((reason for reason, count in counts.items() if count > 1), "abcdef", strict=False))


def _reasons(row: Mechanism) -> list[str]:
    return row.why.split("; ") if row.why else []


def _cells(row: Mechanism, letters: dict[str, str]) -> list[str]:
    reasons = [f"*{letters[reason]}*" if reason in letters else reason for reason in _reasons(row)]
    return [row.name, *(_cell(row, rig) for rig in RIGS), "; ".join(reasons)]


def _cell(row: Mechanism, rig: str) -> str:
    """Bold: in `make test`."""
    files = _files(row.tests.get(rig, ()))
    return f"**{files}**" if files and (rig in row.stays or rig == CHEAP) else files


def _files(tests: Iterable[str]) -> str:
    """Each once; the page would be unreadable with the names of all functions."""
    found = dict.fromkeys(test.partition("::")[0].removesuffix(".py") for test in tests)
    return ", ".join(f"`{file}`" for file in found)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
