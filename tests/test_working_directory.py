"""No program of Carpool's is imported from the working directory, where other users may write."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "carpool"
#: What reads the command lines of jobs; kernels, whose interpreter may be too old to know -P and is asked; a command
#: that is only printed.
OTHERS = ("estimate/rehearsal/script.py", "cli/commands/integration/kernel.py", "protocol/missing_package.py")


def lists(tree: ast.AST) -> Iterator[list[ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            yield node.elts
        elif isinstance(node, ast.Call):
            yield node.args


def unsafe(source: str) -> list[int]:
    """Lines in which Python is told to run a module or a text, and not by -P to leave the working directory out."""
    found = []
    for words in lists(ast.parse(source)):
        values = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for index, value in enumerate(values):
            if value == "-m" and values[:index][-1:] != ["-P"]:
                found.append(words[index].lineno)
    return found


def test_every_module_that_is_run_is_looked_for_elsewhere() -> None:
    places = {path.relative_to(SOURCES).as_posix(): unsafe(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}
    assert {name: lines for name, lines in places.items() if lines and name not in OTHERS} == {}
    assert all(places[name] for name in OTHERS), "an exception that is none any more"


def test_what_is_found() -> None:
    assert unsafe("run([python, '-m', 'carpool.tasks'])") == [1]
    assert unsafe("run(python, '-m', 'carpool.tasks')") == unsafe("ARGUMENTS = ('-m', NAME)") == [1]
    assert unsafe("run(*(python, '-P', '-m', 'carpool.tasks'))") == []
