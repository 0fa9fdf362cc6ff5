"""The source archive, and the wheel that is built from it and nothing else."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.release import manylinux
from tools.release.problem import run


def build_archives(root: Path, time: int, out: Path) -> list[Path]:
    """Files in ``out``, of the source in ``root``.  Raises Problem.

    ``time``: of the source's commit, in seconds since 1970; the archives say that it is the age of all their files, so
    that the same source makes the same archives.
    """
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time)}
    with TemporaryDirectory() as directory:
        built, unpacked = Path(directory) / "built", Path(directory) / "unpacked"
        archive = _built(root, "sdist", out, environment)
        with tarfile.open(archive) as content:
            content.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            content.extractall(unpacked)
        (tree,) = unpacked.iterdir()
        wheel = _built(tree, "wheel", built, environment | manylinux.compiler())
        return [archive, manylinux.checked(wheel, out, environment)]


def _built(tree: Path, kind: str, out: Path, environment: dict[str, str]) -> Path:
    before = set(out.iterdir()) if out.exists() else set()
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out], cwd=tree, env=environment)
    (made,) = set(out.iterdir()) - before
    return made
