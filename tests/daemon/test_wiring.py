"""How the daemon's parts are put together: each gets what it needs when it is made, and nothing afterwards."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DAEMON = ROOT / "src/carpool/daemon"
RIGS = [ROOT / "tests/daemon/rig.py", ROOT / "tests/daemon/cuda_rig.py"]
#: State that several parts write, by design: what is known of one job, process, file, request.  Parts are none of them.
RECORDS = {
    *("File", "CheckpointJob", "JobRecord", "Line", "MemoryUser", "Pieces", "Process", "SecondaryProcess", "_Waiting"),
    *("JoinedProcess", "_Kept", "_Work"),
}
#: Declaring functions of the C library, and how SQLite's texts are decoded: the libraries leave no other way.
CTYPES = {"restype", "argtypes", "text_factory"}
#: Where parts are put together there is no record at hand.
WIRING = {DAEMON / "app.py", DAEMON / "build.py", DAEMON / "memory/parts.py"}


def sources() -> list[Path]:
    return sorted(DAEMON.rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def record_fields() -> dict[str, set[str]]:
    """Of each of `RECORDS` its fields; one with a type that can be called is none."""
    found: dict[str, set[str]] = {}
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and node.name in RECORDS:
                lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
                fields = {ast.unparse(line.target) for line in lines if "Callable" not in ast.unparse(line.annotation)}
                found[node.name] = fields
    return found


def targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns."""
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return
    for target in found:
        yield from (part for part in _parts(target) if isinstance(part, ast.Attribute))


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _parts(one)
    else:
        yield target


def allowed(target: ast.Attribute, fields: set[str]) -> bool:
    """Whether it is an object's own, or the field of a record, which no part has as a part of its own."""
    owner = ast.unparse(target.value)
    return (
        owner == "self"
        or target.attr in CTYPES
        or (target.attr in fields and ("[" in owner or not owner.startswith("self._")))
    )


def from_outside(tree: ast.Module, fields: set[str]) -> list[str]:
    """What is assigned to attributes of other objects that are no records."""
    return [
        f"line {target.lineno}: {ast.unparse(target)}"
        for node in ast.walk(tree)
        for target in targets(node)
        if not allowed(target, fields)
    ] + [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr")
    ]


def waiting_for_somebody(tree: ast.Module) -> list[str]:
    """Attributes that `__init__` leaves open, or fills with something to call that somebody is to replace."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for line in ast.walk(node):
                bare = isinstance(line, ast.AnnAssign) and line.value is None
                stand_in = isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(line.value, ast.Lambda)
                found += [f"line {target.lineno}: {ast.unparse(line)}" for target in targets(line) if bare or stand_in]
    return found


def test_the_records_are_what_they_are_called() -> None:
    assert record_fields().keys() == RECORDS


def wired_afterwards(path: Path) -> list[str]:
    fields = set() if path in WIRING else set().union(*record_fields().values())
    return from_outside(tree_of(path), fields) + waiting_for_somebody(tree_of(path))


def test_nothing_is_assigned_to_a_part_from_outside() -> None:
    assert set(sources()) > WIRING
    wrong = [f"{path.relative_to(ROOT)}, {one}" for path in [*sources(), *RIGS] for one in wired_afterwards(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "self.channels.shim_quiet = self.processes.quiet",
        "seating.keep, seating.drop = processes.keep, processes.drop",
        "offloads.again = returning.again = granting.again",
        "self._turns.watch = stopped.watch",
        "setattr(turns, 'watch', watch)",
    ],
)
def test_wiring_afterwards_is_seen(line: str) -> None:
    assert from_outside(ast.parse(line), set().union(*record_fields().values()))


@pytest.mark.parametrize("line", ["self.watch: Callable[[Job], None]", "self.freed: Callable[[], None] = lambda: None"])
def test_an_attribute_that_waits_for_somebody_is_seen(line: str) -> None:
    assert waiting_for_somebody(ast.parse(f"class A:\n  def __init__(self):\n    {line}"))
