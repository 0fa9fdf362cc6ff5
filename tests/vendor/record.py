"""What NVIDIA's runtimes ask of a driver, by their wheels: ``python -m tests.vendor.record`` writes ``queries.txt``.

A line has the name, the version and the flags of a query, the form that a driver has for it, by the newest runtime's
header (``7000_ptds``; ``-``: the header has no such call), and the runtimes that ask.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.vendor.wheels import HERE, RUNTIMES, folder_of, library, requirements, version_of

QUERIES = HERE / "queries.txt"
#: The runtime asks when it is first used.  That is refused (34, the driver is a stub).
USE = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
#: Of each call the versions, and of the form for per-thread streams: what is behind the version.
Forms = dict[str, list[tuple[int, str]]]


class Query(NamedTuple):
    name: str
    version: int
    flags: int  # 2: a null stream is the calling thread's own


def asked(runtime: Path) -> set[Query]:
    """By one runtime, `libcudart.so`.  Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as place:
        driver = Path(place) / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", HERE / "recorder.c", "-o", driver], check=True)
        environment = os.environ | {"LD_LIBRARY_PATH": place}
        done = subprocess.run(
            [sys.executable, "-c", USE, runtime], env=environment, capture_output=True, text=True, check=True
        )
    assert done.stdout.split() == ["34"], done
    lines = [line.split() for line in done.stderr.splitlines() if not line.startswith(" ")]  # the first has no name
    return {Query(name, int(version), int(flags)) for name, version, flags in lines}


def forms(headers: Path) -> Forms:
    text = "".join(path.read_text() for path in headers.rglob("cuda*Typedefs.h"))
    found: Forms = {}
    for name, version, own in re.findall(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_pt(?:sz|ds))?\)", text):
        found.setdefault(name, []).append((int(version), own))
    return found


def form_of(query: Query, known: Forms) -> str:
    """The newest that is not newer than what is asked for; of the thread's own streams if there is one."""
    there = [form for form in known.get(query.name, []) if form[0] <= query.version]
    own = [form for form in there if form[1] and query.flags == 2]
    version, suffix = max(own or [form for form in there if not form[1]], default=("-", ""))
    return f"{version}{suffix}"


def recorded() -> dict[Query, tuple[str, list[str]]]:
    """The form of each query, and the versions of the runtimes that ask."""
    found = {}
    for line in QUERIES.read_text().splitlines():
        name, version, flags, form, runtimes = line.split()
        found[Query(name, int(version), int(flags))] = (form, runtimes.split(","))
    return found


def main() -> None:
    wheels = requirements(RUNTIMES)
    by_runtime = {version_of(wheel): asked(library(folder_of(wheel), r"libcudart\.so\.1\d")) for wheel in wheels}
    known = forms(folder_of(wheels[-1]))
    lines = []
    for query in sorted(set().union(*by_runtime.values())):
        runtimes = ",".join(version for version, queries in by_runtime.items() if query in queries)
        lines.append(f"{query.name} {query.version} {query.flags} {form_of(query, known)} {runtimes}\n")
    QUERIES.write_text("".join(lines))


if __name__ == "__main__":
    main()
