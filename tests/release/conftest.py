"""Repositories to release from, keys that are thrown away, and a user who has no settings of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.release.repositories import tag_all
from tools.release.problem import run

Tagged = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _programs() -> None:
    """What a set-up does not need, and a release does."""
    if missing := [name for name in ("git", "ssh-keygen") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")


def release_python(root: Path) -> Path:
    """Skips the test where there is no make; whatever else keeps the environment from being made is a failure."""
    if shutil.which("make") is None:
        pytest.skip("not installed: make")
    made = subprocess.run(["make", "build/release/.stamp"], cwd=root, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.fail(f"make build/release/.stamp fails: {made.stderr.strip()[-300:]}", pytrace=False)
    return root / "build" / "release" / "bin" / "python"


@pytest.fixture(scope="session")
def python() -> Path:
    """That of the release's own environment, which `make release` makes."""
    return release_python(ROOT)


@pytest.fixture
def tagged(tmp_path: Path) -> Tagged:
    """A repository with nothing but a version and a list of changes, and a tag."""

    def make(tag: str, version: str, heading: str) -> Path:
        place = tmp_path / "repository"
        run(["git", "init", "-q", place])
        (place / "pyproject.toml").write_text(f'[project]\nname = "carpool"\nversion = "{version}"\n')
        (place / "CHANGELOG.md").write_text(f"# Changes\n\n## {heading}\n\nMuch.\n")
        tag_all(place, tag)
        (place / "forgotten").touch()  # no part of the tag
        return place

    return make


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file])
    return file


@pytest.fixture
def verified(tmp_path: Path, key: Path) -> Callable[[Path], bool]:
    """Whether what docs/releases.md tells users to type says that a directory is as it was signed."""
    allowed = tmp_path / "allowed_signers"
    allowed.write_text(f"carpool {key.with_suffix('.pub').read_text()}")

    def verify(directory: Path) -> bool:
        commands = (
            f"ssh-keygen -Y verify -f {allowed} -I carpool -n carpool-release -s SHA256SUMS.sig < SHA256SUMS"
            " && sha256sum --check --strict SHA256SUMS"
        )
        return subprocess.run(commands, shell=True, cwd=directory, capture_output=True, check=False).returncode == 0

    return verify
