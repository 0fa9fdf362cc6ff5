"""Scripts of `tests/workloads` on the device, one after another: ``conformance.py RESULT SCRIPT[:ARGUMENT]...``."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

WORKLOADS = Path(__file__).parents[3] / "workloads"


def main(out: Path, scripts: list[str]) -> None:
    os.environ.setdefault("DEVICE", "cuda")
    sys.path[0] = str(WORKLOADS)
    sys.argv = [sys.argv[0], str(out), *(script.replace(":", " ") for script in scripts)]
    runpy.run_path(str(WORKLOADS / "several.py"), run_name="__main__")
    out.write_text(json.dumps(dict(zip(scripts, json.loads(out.read_text()), strict=True))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
