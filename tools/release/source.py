"""What is released: a tag of this repository, in a checkout of its own without anything else."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.release.problem import Problem, run


@dataclass(frozen=True)
class Source:
    """``time``: of the tagged commit, in seconds since 1970."""

    root: Path
    version: str
    commit: str
    time: int


def check_out(repository: Path, tag: str, place: Path) -> Source:
    """A clone of the tag alone.  Raises Problem, also where tag, version and list of changes do not agree."""
    git = ["git", "-c", "advice.detachedHead=false"]
    run([*git, "-C", repository, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}"])
    run([*git, "clone", "--quiet", "--depth=1", f"--branch={tag}", repository.resolve().as_uri(), place])
    commit, time = run([*git, "-C", place, "log", "-1", "--format=%H %ct"]).split()
    source = Source(place, tag.removeprefix("v"), commit, int(time))
    _check_version(source, tag)
    return source


def _check_version(source: Source, tag: str) -> None:
    """Raises Problem."""
    named = tomllib.loads((source.root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{named}":
        raise Problem(f"the tag is {tag}, and pyproject.toml says version {named}: tag v{named}, or change the version")
    headings = re.findall(r"^## (.+)$", (source.root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not any(re.fullmatch(rf"{re.escape(named)}, \d{{4}}-\d\d-\d\d", heading) for heading in headings):
        raise Problem(f'CHANGELOG.md has no heading "## {named}, YEAR-MONTH-DAY": write it, and tag again')
