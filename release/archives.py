"""The source archive, and the wheel that is built from it and nothing else."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from release.problem import run
from release.source import Source


def build_archives(source: Source, out: Path) -> list[Path]:
    """Files in ``out``.  Raises Problem."""
    (archive,) = _built(source, source.root, "sdist", out)
    with TemporaryDirectory() as directory, tarfile.open(archive) as content:
        content.extractall(directory, filter="data")
        (tree,) = Path(directory).iterdir()
        return [archive, *_built(source, tree, "wheel", out)]


def _built(source: Source, tree: Path, kind: str, out: Path) -> list[Path]:
    """Times in archives are that of the commit, so that the same source makes the same source archive."""
    before = set(out.iterdir())
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(source.time)}
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out], cwd=tree, env=environment)
    return sorted(set(out.iterdir()) - before)
