"""A program of this folder in a process that `multiprocessing` starts; its parent does not use the GPU.

``children.py RESULT METHOD PROGRAM ARGUMENT...``
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torch import multiprocessing


def run(result: str, program: str, arguments: list[str]) -> None:
    sys.argv = [program, result, *arguments]
    runpy.run_path(str(Path(__file__).with_name(f"{program}.py")), run_name="__main__")


if __name__ == "__main__":
    result, method, program, *arguments = sys.argv[1:]
    child = multiprocessing.get_context(method).Process(target=run, args=(result, program, arguments))
    child.start()
    child.join()
    sys.exit(child.exitcode)
