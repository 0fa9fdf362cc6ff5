"""What comes from others is what its list says, and nothing else lies beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "src/carpool/dashboard/static"
FOLDERS = [STATIC / "vendor", Path(__file__).parent / "vendor"]
#: Bytes of all that the page loads; uPlot is two thirds of it.
MOST_BYTES = 400 << 10


def listed(folder: Path) -> dict[str, Any]:
    packages = json.loads((folder / "vendor.json").read_text())["packages"]
    return {file["path"]: file["sha256"] for package in packages for file in package["files"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=["shipped", "tests"])
def test_files_are_those_of_the_list(folder: Path) -> None:
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    del present["vendor.json"]
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in present.items()} == listed(folder)


@pytest.mark.parametrize("folder", FOLDERS, ids=["shipped", "tests"])
def test_each_package_has_a_licence_and_what_npm_says(folder: Path) -> None:
    for package in json.loads((folder / "vendor.json").read_text())["packages"]:
        assert package["integrity"].startswith("sha512-") and package["license"]
        assert any(file["path"].endswith("LICENSE") for file in package["files"]), package["name"]


def test_the_page_is_small_and_imports_its_own_files_only() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < MOST_BYTES
    for path in (STATIC / "app").rglob("*.js"):
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "} from ")) and " from " in line:
                target = line.rpartition(" from ")[2].strip("\"';")
                assert (path.parent / target).resolve().is_file(), f"{path}: {line}"


def test_nothing_of_the_daemon_becomes_markup() -> None:
    for path in (STATIC / "app").rglob("*.js"):
        text = path.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, f"{path} uses {word}"
