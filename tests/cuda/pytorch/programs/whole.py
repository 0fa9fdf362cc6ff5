"""Run a public script, and compare all that it has left: ``whole.py RESULT SCRIPT ARGUMENT...``.

The script is unmodified; its globals ``model`` and ``optimizer`` are looked at when it has ended.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from common import digest, finish, meet, state_of

PUBLIC = Path(__file__).parents[4] / "benchmarks" / "workloads" / "public"


def run(name: str, arguments: list[str]) -> None:
    result = sys.argv[1]
    script = PUBLIC / f"{name}.py"
    sys.path.insert(0, str(PUBLIC))
    sys.argv = [str(script), *arguments]
    left = runpy.run_path(str(script), run_name="__main__")
    sys.argv = [str(script), result]
    state = left["model"].state_dict()
    finish(weights=digest(state.values()), state=digest(state_of(left["optimizer"])), names=list(state))


if __name__ == "__main__":
    meet()
    run(sys.argv[2], sys.argv[3:])
