"""`make release` with this tree: archives from which Carpool can be installed, and a list of what it needs."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.release.repositories import tag_all
from tools.release.problem import Problem, run

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The latest commit of this tree, as if it were to be released today."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no git repository")
    place = tmp_path / "repository"
    run(["git", "clone", "-q", "--depth=1", ROOT.as_uri(), place])
    changes = place / "CHANGELOG.md"
    heading = f"## {VERSION}, 2026-11-30"
    changes.write_text(re.sub(rf"^## {re.escape(VERSION)}.*$", heading, changes.read_text(), flags=re.MULTILINE))
    tag_all(place, f"v{VERSION}")
    return place


def parts(bom: dict[str, Any]) -> dict[str, str]:
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    return {part["name"]: part["version"] for part in bom["components"]}


@pytest.mark.nightly(
    "an environment of its own, and a compiler: a quarter of a minute",
    stays="tests/release/test_signature.py::test_what_was_signed_is_verified",
)
def test_a_release(python: Path, repository: Path, key: Path, tmp_path: Path, verified: Callable[[Path], bool]) -> None:
    out = tmp_path / "out"
    command = [python, "-m", "tools.release", f"v{VERSION}", "--key", key, "--repository", repository, "--out", out]
    run(command, cwd=ROOT)
    (wheel,), (archive,), (listed,) = out.glob("*.whl"), out.glob("*.tar.gz"), out.glob("*.cdx.json")
    files = {wheel.name, archive.name, listed.name}
    assert {path.name for path in out.iterdir()} == files | {"SHA256SUMS", "SHA256SUMS.sig"}
    assert verified(out) and {line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()} == files
    assert "carpool/_native/libcarpool.so" in zipfile.ZipFile(wheel).namelist() and "manylinux_2_17_" in wheel.name
    with tarfile.open(archive) as content:
        for name in ("src/native/abi/seat.h", "requirements/carpool.lock"):
            assert f"carpool-{VERSION}/{name}" in content.getnames()
    needed = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements/carpool.txt").read_text(), re.MULTILINE))
    shipped = json.loads((ROOT / "src/carpool/dashboard/static/vendor/vendor.json").read_text())["packages"]
    bom = json.loads(listed.read_text())
    assert parts(bom) == needed | {package["name"]: package["version"] for package in shipped}
    assert sum(part["purl"].startswith("pkg:npm/") for part in bom["components"]) == len(shipped) > 0
    with pytest.raises(Problem, match="exists already"):
        run(command, cwd=ROOT)
