"""Only `carpool.facts` matches on the names of events about turns; drivers of the core make and obey them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from carpool.facts.fold import ASKED, FREQUENT

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("src/carpool", "tools", "benchmarks", "docs")
NAMES = FREQUENT | ASKED | {"WatchIdle"}
#: The core, the fold, what carries out commands, and the words for each kind of event.
ALLOWED = (
    *("src/carpool/core/", "src/carpool/facts/", "src/carpool/cli/render/event_words.py"),
    *("src/carpool/daemon/effects.py", "src/carpool/sim/jobs/lane_jobs.py", "src/carpool/sim/services/workers.py"),
    "src/carpool/sim/services/engine_process.py",
)


def matched(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code asks for: as text, or as a class outside of a call, an import and a type."""
    typed = {id(inner) for hint in hints(tree) for inner in ast.walk(hint)}
    made = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in typed | made:
            continue
        match node:
            case ast.Constant(value=str(name)) | ast.Name(id=name) | ast.Attribute(attr=name) if name in NAMES:
                yield name


def hints(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (hint := getattr(node, name, None)) is not None:
                yield hint


def test_nobody_else_folds_turns() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sorted(names)
        for place in PLACES
        for path in (ROOT / place).rglob("*.py")
        if any(name in (text := path.read_text()) for name in NAMES) and (names := set(matched(ast.parse(text))))
    }
    assert {path: names for path, names in found.items() if not path.startswith(ALLOWED)} == {}
    assert all(any(path.startswith(allowed) for path in found) for allowed in ALLOWED), "each exception is needed"


def test_a_fold_elsewhere_is_found() -> None:
    code = "def f(e: GrantTurn):\n  e.kind == 'GrantTurn'\n  {events.TurnPassed: 1}\n  post(TurnWanted(1))"
    assert list(matched(ast.parse(code))) == ["GrantTurn", "TurnPassed"]
