"""The dated result file: JSON for programs, Markdown for people."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.machine import slug


@dataclass(slots=True)
class Report:
    date: str
    machine: dict[str, str | int]
    quick: bool
    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def line(self, figure: Figure) -> str:
        spread = f" ({number(figure.low)} to {number(figure.high)}, {figure.runs} runs)" if figure.runs > 1 else ""
        return (
            f"{figure.name}: {number(figure.value)} {figure.unit}{spread}; target {target(figure)}: {verdict(figure)}"
        )

    def write(self, directory: Path, label: str = "") -> Path:
        """Both files; returns the one for people.  A second run on a day with the same label replaces the first."""
        directory.mkdir(parents=True, exist_ok=True)
        parts = (self.date, slug(str(self.machine["cpu"])), slug(label), "quick" if self.quick else "")
        stem = "-".join(part for part in parts if part)
        content = {
            "date": self.date,
            "quick": self.quick,
            "machine": self.machine,
            "figures": [figure.as_dict() for figure in self.figures],
            "skipped": self.skipped,
            "failed": self.failed,
        }
        (directory / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        path = directory / f"{stem}.md"
        path.write_text(self.markdown(), encoding="utf-8")
        return path

    def markdown(self) -> str:
        facts = "\n".join(f"- {name}: {value}" for name, value in self.machine.items())
        warning = "\nA quick run with few repetitions: not to be quoted.\n" if self.quick else ""
        columns = ("benchmark", "what", "median", "range", "runs", "target", "met", "both sides")
        header = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
        rows = "\n".join(self._row(figure) for figure in self.figures)
        missing = "".join(f"\n- {name} was skipped: {why}" for name, why in self.skipped.items())
        missing += "".join(f"\n- {name} failed: {why}" for name, why in self.failed.items())
        return f"# Benchmarks of {self.date}\n{warning}\n{facts}\n\n{header}\n{rows}\n{missing}\n"

    def _row(self, figure: Figure) -> str:
        detail = ", ".join(f"{key} {_short(value)}" for key, value in figure.detail.items() if key != "runs")
        cells = [
            figure.benchmark, figure.name, f"{number(figure.value)} {figure.unit}",
            f"{number(figure.low)} to {number(figure.high)}", str(figure.runs), target(figure), verdict(figure), detail,
        ]  # fmt: skip
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday sizes."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def target(figure: Figure) -> str:
    if figure.target is None:
        return "none"
    return f"{'≥' if figure.at_least else '≤'} {number(figure.target)}"


def verdict(figure: Figure) -> str:
    return {True: "yes", False: "NO", None: "-"}[figure.met]


def _short(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return "[" + " ".join(_short(item) for item in value) + "]"
    return str(value)
