"""NVIDIA's own libraries, from the wheels that two lists here name, in ``build/nvidia``: ``make nvidia-wheels``.

Tests only load them, or ask them what they ask of a driver.  One folder has the files of one wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / "build" / "nvidia"
RUNTIMES, LIBRARIES = HERE / "runtimes.txt", HERE / "libraries.txt"


def requirements(listing: Path) -> list[str]:
    """Lines as pip has them, ``nvidia-cublas==13.1.1.3 --hash=sha256:...``."""
    return [line for line in listing.read_text().splitlines() if line and not line.startswith("#")]


def folder_of(requirement: str) -> Path:
    return PLACE / requirement.split()[0]


def version_of(requirement: str) -> str:
    return requirement.split()[0].partition("==")[2]


def need(requirement: str) -> Path:
    """The folder with the wheel's files; skips the test where it has not been downloaded."""
    folder = folder_of(requirement)
    if not folder.is_dir():
        pytest.skip(f"not downloaded: {folder.name} (make nvidia-wheels)")
    return folder


def library(folder: Path, pattern: str) -> Path:
    (found,) = [path for path in folder.rglob("lib*.so*") if re.fullmatch(pattern, path.name)]
    return found


def download(requirement: str) -> None:
    """Raises CalledProcessError: pip has said why."""
    folder = folder_of(requirement)
    if folder.is_dir():
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        listing = Path(place) / "wheel.txt"
        listing.write_text(f"{requirement}\n")
        options = ["--no-deps", "--require-hashes", "--dest", place, "--requirement", str(listing)]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *options], check=True)
        (wheel,) = Path(place).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(Path(place) / "files")
        (Path(place) / "files").rename(folder)


if __name__ == "__main__":
    for one in [*requirements(RUNTIMES), *requirements(LIBRARIES)]:
        print(one.split()[0])
        download(one)
