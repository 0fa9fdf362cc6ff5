"""Tables, and the page that holds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_BLOCK = re.compile(r"(<!-- table ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables renewed.  Raises ValueError if page and tables do not name the same ones."""
    there = {match[2] for match in _BLOCK.finditer(page)}
    if there != set(tables):
        raise ValueError(f"the page has the tables {sorted(there)}, the results {sorted(tables)}")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{tables[match[2]]}\n\n{match[3]}", page)
