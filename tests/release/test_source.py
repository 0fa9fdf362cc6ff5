"""What may be released: a tag whose version and list of changes say the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.release.problem import Problem, run
from tools.release.source import check_out

if TYPE_CHECKING:
    from tests.release.conftest import Tagged


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
