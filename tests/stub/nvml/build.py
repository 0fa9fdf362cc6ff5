"""Compile the stub NVML: ``python3 tests/stub/nvml/build.py DIRECTORY``.  Standard library only."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Werror",
]


def build_nvml(directory: Path) -> Path:
    """``libnvidia-ml.so.1`` in the directory, which is what LD_LIBRARY_PATH should name.

    It has no SONAME, so that a process that has loaded it by its path can still load the real one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    files = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    subprocess.run([*compiler, *FLAGS, *files, "-lpthread", "-o", str(library)], check=True)
    return library


if __name__ == "__main__":
    print(build_nvml(Path(sys.argv[1])))
