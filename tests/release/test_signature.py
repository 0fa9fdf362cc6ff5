"""Checksums and their signature, verified with the programs that users have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.release.problem import Problem
from tools.release.signature import sign


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
