"""`make vendor`: files of other projects that the dashboard and its tests use, taken from npm anew.

Each folder's ``vendor.json`` says which packages it has, at which version, and which of their files.  The packages come
by ``npm pack``; the hashes written there are what `tests/dashboard/browser/test_vendored.py` compares.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: What is shipped with the dashboard, and what only its tests need.
SHIPPED, OF_TESTS = "src/carpool/dashboard/static/vendor", "tests/dashboard/browser/vendor"
LIST = "vendor.json"


def renew(folder: Path) -> None:
    """Fetch the packages of the folder's list, at its versions; raises CalledProcessError where npm cannot."""
    listed = json.loads((folder / LIST).read_text())
    for package in listed["packages"]:
        _renew_package(folder, package)
    (folder / LIST).write_text(f"{json.dumps(listed, indent=2)}\n")


def _renew_package(folder: Path, package: dict[str, Any]) -> None:
    """Write the package's files, and note their hashes in ``package``."""
    with tempfile.TemporaryDirectory() as directory:
        wanted = f"{package['name']}@{package['version']}"
        packed = subprocess.run(["npm", "pack", "--json", wanted], cwd=directory, check=True, capture_output=True)
        answer = json.loads(packed.stdout)[0]
        package["integrity"] = answer["integrity"]
        with tarfile.open(Path(directory) / answer["filename"]) as archive:
            for file in package["files"]:
                _take(archive, file, folder)


def _take(archive: tarfile.TarFile, file: dict[str, str], folder: Path) -> None:
    source = archive.extractfile(f"package/{file['source']}")
    if source is None:
        raise FileNotFoundError(f"{file['source']} is no file of the package")
    content = source.read()
    target = folder / file["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    file["sha256"] = hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    for vendored in (SHIPPED, OF_TESTS):
        renew(ROOT / vendored)
