"""Changes and tags in temporary repositories."""

from __future__ import annotations

from pathlib import Path

from tools.release.problem import run


def tag_all(place: Path, tag: str) -> None:
    for command in (["add", "-A"], ["commit", "-q", "-m", "A release"], ["tag", "-f", tag]):
        run(["git", "-C", place, *command])
