"""Compile the stub driver: ``libcuda.so.1`` for machines without a GPU.

Standard library only: ``python3 tests/stub/build.py DIRECTORY [--sanitize address,undefined]``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent
NATIVE = STUB.parents[1] / "native"
# -Bsymbolic: like the real one, the stub calls its own functions even where a preloaded library has the same names.
# nodelete: its threads outlive a dlclose.
FLAGS = [
    "-std=gnu11",
    "-O1",  # it computes little, and is compiled before every run
    "-g",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Werror",
]
LINKING = ["-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-soname,libcuda.so.1", "-lpthread"]


def command_line(output: Path, sanitize: str | None) -> list[str]:
    sanitizer = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"] if sanitize else []
    sources = [str(path) for path in sorted((STUB / "driver").glob("*.c"))]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    return [*compiler, *FLAGS, *sanitizer, *sources, f"-I{NATIVE}", f"-I{STUB / 'driver'}", *LINKING, "-o", str(output)]


def build_driver(directory: Path, sanitize: str | None = None) -> Path:
    """Build ``libcuda.so.1`` (and the link ``libcuda.so``) in ``directory`` and return its path.

    ``sanitize`` is a value of the compiler's ``-fsanitize``; the program that loads the library needs the same one.
    Raises RuntimeError with the compiler's complaint.
    """
    directory.mkdir(parents=True, exist_ok=True)
    output = directory / "libcuda.so.1"
    partial = directory / f"libcuda.{os.getpid()}.tmp"
    result = subprocess.run(command_line(partial, sanitize), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"the stub driver could not be compiled:\n{result.stderr.strip()}")
    partial.replace(output)
    link = directory / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to(output.name)
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the stub driver")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sanitize", help="address, undefined, or both with a comma")
    options = parser.parse_args()
    print(build_driver(options.directory, options.sanitize))
    return 0


if __name__ == "__main__":
    sys.exit(main())
