"""The tests of one module: ``python -m tests.of_module src/carpool/daemon/jobs/seat_table.py`` names their files.

They are the file of its name in the folder of its name, and all that import it; for a module that tests reach through
others only, the folder.  Standard library only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TESTS = ROOT / "src" / "carpool", ROOT / "tests"


def files_of(module: Path) -> list[Path]:
    """Raises ValueError for a path outside of the package."""
    inside = module.resolve().relative_to(SOURCE)
    named = TESTS / inside.parent / f"test_{inside.stem}.py"
    dotted = ".".join(["carpool", *inside.with_suffix("").parts]).removesuffix(".__init__")
    found = {file for file in TESTS.rglob("test_*.py") if file == named or dotted in imported(file, dotted)}
    return sorted(found) or [_folder(inside.parent)]


def imported(file: Path, module: str) -> set[str]:
    """Modules that it imports, and what it imports from them: a name may be a module, too.

    Empty where the text does not have the module's last name: that takes a thousandth of the time.
    """
    text = file.read_text()
    if module.rpartition(".")[2] not in text:
        return set()
    return {name for node in ast.walk(ast.parse(text)) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _folder(inside: Path) -> Path:
    """The nearest folder of tests."""
    return next(TESTS / place for place in (inside, *inside.parents) if (TESTS / place).is_dir())


def main() -> int:
    if not sys.argv[1:]:
        print("error: name a module, as in MODULE=src/carpool/core/memory/eviction.py", file=sys.stderr)
        return 1
    try:
        for module in sys.argv[1:]:
            print(*(file.relative_to(ROOT) for file in files_of(Path(module))), sep="\n")
    except ValueError:
        print(f"error: {module} is no module in src/carpool", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
