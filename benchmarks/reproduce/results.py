"""What a run brings, and how it is stored: JSON for programs, Markdown for people.  No date, no times of the run."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.reproduce import carma, inference, philly, sweeps, table1
from benchmarks.reproduce.markdown import fill
from benchmarks.reproduce.runs import Data

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "benchmarks" / "reproductions.md"
SUFFIX = "-reproductions.json"
READERS = {
    "table1": table1.tables,
    "sweeps": sweeps.tables,
    "inference": inference.tables,
    "philly": philly.tables,
    "carma": carma.tables,
}


def all_tables(data: Data) -> dict[str, str]:
    """Every table, by the name that the page gives it."""
    return {name: text for part, read in READERS.items() for name, text in read(data[part]).items()}


def write(data: Data, path: Path) -> None:
    """``path`` and, beside it, the same for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    parts = "\n\n".join(f"## {name}\n\n{text}" for name, text in all_tables(data).items())
    title = f"# Reproductions, {data['seeds']} seeds\n\nExplained in benchmarks/reproductions.md."
    path.with_suffix(".md").write_text(f"{title}\n\n{parts}\n", encoding="utf-8")


def newest() -> Path:
    """The latest stored result.  Raises ValueError if there is none."""
    return max(RESULTS.glob(f"*{SUFFIX}"), key=lambda path: path.name)


def renewed(page: str, stored: Path) -> str:
    """The page with the tables of a stored result."""
    return fill(page, all_tables(json.loads(stored.read_text(encoding="utf-8"))))
