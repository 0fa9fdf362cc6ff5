"""An interpreter in which nothing can be imported beside the standard library and the named distributions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def bare_interpreter(directory: Path, *distributions: str) -> str:
    """Its path.  The distributions, and what they need, are links to those of this interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (site,) = directory.glob("lib/python*/site-packages")
    needed = map(metadata.distribution, _needed(distributions, set()))
    for place in {place for one in needed for place in _places(one)}:  # several may have parts of one package
        (site / place.name).symlink_to(place)
    return str(directory / "bin" / "python")


def _needed(names: tuple[str, ...], known: set[str]) -> Iterator[str]:
    for name in names:
        if name in known:
            continue
        known.add(name)
        yield name
        wanted = [Requirement(text) for text in metadata.requires(name) or ()]
        inner = [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        yield from _needed(tuple(inner), known)


def _places(found: metadata.Distribution) -> set[Path]:
    """The files and folders that it has in its `site-packages`."""
    tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    return {Path(str(found.locate_file(top))) for top in tops}
