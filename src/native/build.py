"""Compile libcarpool.so.  One place for the compiler flags: the wheel's build hook and the Makefile both come here.

Standard library only, so that it runs before anything is installed: ``python3 src/native/build.py [--strict] [OUT]``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).resolve().parent
OUTPUT = NATIVE.parent / "carpool" / "_native" / "libcarpool.so"
FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow"]
#: musl's loader takes the library as well (base/libc.h): nothing of glibc's loader, no functions by the names that
#: _FORTIFY_SOURCE, which some distributions' compilers turn on, gives them.
FLAGS += ["-ftls-model=initial-exec", "-U_FORTIFY_SOURCE"]
#: The loader finds every function at the start.  At its first call it would save all vector registers on the stack,
#: perhaps that of a signal handler: with AVX-512 they are more than a trap is sure to have there (job/signals.c).
FLAGS += ["-Wl,-z,now"]
#: Versions of symbols are those of a library with a name; else it is the output's, with its directory.
FLAGS += ["-Wl,-soname,libcarpool.so"]
LIBRARIES = ["-lpthread", "-ldl"]
#: The folders of the library's own C files; tests and benchmarks lie beside them.
FOLDERS = ("base", "job", "turn", "arena", "store", "weights", "cuda", "cuda/memory", "cuda/turn")
EXPORTS = NATIVE / "abi" / "exports.map"


class BuildError(Exception):
    """The library could not be built; the text says what to do."""


def sources() -> list[Path]:
    """The library's own C files."""
    found = {folder: sorted((NATIVE / folder).glob("*.c")) for folder in FOLDERS}
    if missing := [folder for folder, files in found.items() if not files]:
        raise BuildError(f"no C sources in {NATIVE} for {', '.join(missing)}: the source tree is incomplete")
    return [path for files in found.values() for path in files]


def compiler() -> list[str]:
    """``$CC`` or ``cc``, with its own arguments."""
    command = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise BuildError(
            f"no C compiler: {command[0]!r} was not found."
            " Install one (Debian: apt-get install gcc libc6-dev), set CC, or take a wheel, which needs none."
        )
    return command


def command_line(output: Path, strict: bool) -> list[str]:
    strictness = ["-Werror"] if strict else []
    exports = f"-Wl,--version-script={EXPORTS}"
    files = [str(path) for path in sources()]
    return [*compiler(), *FLAGS, *strictness, *files, f"-I{NATIVE}", exports, *LIBRARIES, "-o", str(output)]


def build(output: Path = OUTPUT, strict: bool = False) -> Path:
    """Build into a temporary file and rename it, so that a running job never maps half a library.

    ``strict`` turns warnings into errors; users' compilers may know warnings that ours does not.
    Raises BuildError.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(f".{os.getpid()}.tmp")
    try:
        result = subprocess.run(command_line(partial, strict), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise BuildError(f"the C compiler failed:\n{result.stderr.strip()}")
        sys.stderr.write(result.stderr)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile libcarpool.so")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    options = parser.parse_args()
    try:
        build(options.output, options.strict)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
