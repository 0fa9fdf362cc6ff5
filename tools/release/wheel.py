"""``python -m tools.release.wheel OUT``: the wheel of this checkout, as a release would have it; `make wheel`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.release.archives import build_archives
from tools.release.problem import Problem, run

ROOT = Path(__file__).resolve().parents[2]


def make(root: Path, out: Path) -> Path:
    """The only wheel in ``out``.  Raises Problem."""
    time = run(["git", "-C", root, "log", "-1", "--format=%ct"])
    with TemporaryDirectory() as directory:
        _, wheel = build_archives(root, int(time), Path(directory))
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("carpool-*.whl"):
            old.unlink()
        return Path(shutil.copy(wheel, out))


if __name__ == "__main__":
    try:
        print(make(ROOT, Path(sys.argv[1])))
    except Problem as problem:
        sys.exit(f"error: {problem}")
