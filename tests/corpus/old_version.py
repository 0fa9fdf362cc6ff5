"""Carpool 0.1.0 as it was, from an archive: its daemon, its shims, its library, and scripts that run under them."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.live import python_path

ARCHIVE = Path(__file__).with_name("version-0.1.0.tar.xz")
SCRIPTS = ("common", "ballast", "steady", "service", "spinner")
#: What of a checkout is in the archive, as git's path specifications.
CONTENT = (
    "src/carpool",
    "native",
    *(f"tests/workloads/{name}.py" for name in SCRIPTS),
    *(f":(exclude)src/carpool/{name}" for name in ("cli", "sim", "estimate")),
    *(f":(exclude)native/{name}" for name in ("tests", "bench", "run_tests.py")),
)


def compressed(archive: bytes) -> bytes:
    return lzma.compress(archive, preset=9 | lzma.PRESET_EXTREME)


class OldVersion:
    """The archive, unpacked and built in a directory."""

    def __init__(self, directory: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.0 to 3.11.3
            archive.extractall(directory)
        self.source = directory / "src"
        self.library = self.source / "carpool" / "_native" / "libcarpool.so"
        self.workloads = directory / "tests" / "workloads"
        subprocess.run([sys.executable, str(directory / "native" / "build.py")], check=True)

    def environment(self) -> dict[str, str]:
        """Of a process that imports this version: its path comes before any other Carpool that is installed."""
        return os.environ | {"PYTHONPATH": python_path(self.source)}
