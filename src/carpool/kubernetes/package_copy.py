"""A copy of the parts of Carpool that containers mount, for a plugin that itself runs in a container.

The kubelet mounts paths of the machine, and the plugin's image is not among these.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


def copied(parts: Iterable[tuple[Path, Path]], directory: Path) -> dict[Path, Path]:
    """Copy files and directories, given with names in the copy; return the path of each copy.  Raises OSError.

    ``directory`` has one copy for each content, made whole or not at all: containers have older copies mounted.
    """
    parts = list(parts)
    directory.mkdir(parents=True, exist_ok=True)
    whole = directory / _digest(source for source, _ in parts)
    if not whole.exists():
        made = Path(tempfile.mkdtemp(prefix="new-", dir=directory))
        made.chmod(0o755)
        for source, name in parts:
            _copy(source, made / name)
        try:
            made.rename(whole)
        except OSError:  # another plugin was faster
            shutil.rmtree(made)
            if not whole.exists():
                raise
    return {source: whole / name for source, name in parts}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def _digest(sources: Iterable[Path]) -> str:
    files = (file for source in sources for file in (sorted(source.rglob("*")) if source.is_dir() else [source]))
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
