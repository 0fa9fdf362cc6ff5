"""`make release` with this tree: what may be released, the archives, their list of parts, and the signature."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.release.repositories import tag_all
from tools.release.problem import Problem, run
from tools.release.source import check_out

if TYPE_CHECKING:
    from tests.release.conftest import Tagged
from tools.release.signature import sign

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
    stays="tests/release/test_release.py::test_what_was_signed_is_verified",
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


def test_a_tag_is_checked_out_and_nothing_else(tagged: Tagged, tmp_path: Path) -> None:
    repository = tagged("v1.2.3", "1.2.3", "1.2.3, 2026-11-30")
    source = check_out(repository, "v1.2.3", tmp_path / "place")
    assert source.version == "1.2.3" and len(source.commit) == 40 and source.time > 0
    assert sorted(path.name for path in source.root.iterdir()) == [".git", "CHANGELOG.md", "pyproject.toml"]


@pytest.mark.parametrize(
    ("version", "heading", "part"),
    [
        ("1.2.4", "1.2.4, 2026-11-30", "pyproject.toml says version 1.2.4: tag v1.2.4"),
        ("1.2.3", "1.2.3, not released", 'no heading "## 1.2.3, YEAR-MONTH-DAY"'),
        ("1.2.3", "11.2.3, 2026-11-30", 'no heading "## 1.2.3, YEAR-MONTH-DAY"'),
    ],
)
def test_a_tag_that_does_not_agree(tagged: Tagged, tmp_path: Path, version: str, heading: str, part: str) -> None:
    repository = tagged("v1.2.3", version, heading)
    with pytest.raises(Problem, match=part):
        check_out(repository, "v1.2.3", tmp_path / "place")


def test_a_branch_is_no_tag(tagged: Tagged, tmp_path: Path) -> None:
    repository = tagged("v1.2.3", "1.2.3", "1.2.3, 2026-11-30")
    branch = run(["git", "-C", repository, "branch", "--show-current"]).strip()
    with pytest.raises(Problem, match=f"refs/tags/{branch} failed"):
        check_out(repository, branch, tmp_path / "place")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    place = tmp_path / "dist"
    place.mkdir()
    for name in ("b.whl", "a.tar.gz"):
        (place / name).write_text(name)
    return sorted(place.iterdir())


def test_what_was_signed_is_verified(files: list[Path], key: Path, verified: Callable[[Path], bool]) -> None:
    sums, signature = sign(files, key, files[0].parent)
    assert [line.split()[1] for line in sums.read_text().splitlines()] == ["a.tar.gz", "b.whl"]
    assert signature.name == "SHA256SUMS.sig" and verified(sums.parent)


@pytest.mark.parametrize("name", ["a.tar.gz", "SHA256SUMS"])
def test_what_was_changed_is_not(files: list[Path], key: Path, verified: Callable[[Path], bool], name: str) -> None:
    sign(files, key, files[0].parent)
    changed = files[0].parent / name
    changed.write_text(changed.read_text().replace("a", "b", 1))
    assert not verified(changed.parent)


def test_a_key_that_is_not_there(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Problem, match="give --key the file of an SSH key"):
        sign(files, tmp_path / "none", files[0].parent)
