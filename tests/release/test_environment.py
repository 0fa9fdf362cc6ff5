"""The environment of releases: where it cannot be made the tests fail, unless the tool that makes it is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.release.conftest import release_python


def test_a_makefile_that_fails_is_a_failure(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("not installed: make")
    (tmp_path / "Makefile").write_text("build/release/.stamp:\n\t@echo no such lock >&2; false\n")
    with pytest.raises(pytest.fail.Exception, match="no such lock"):
        release_python(tmp_path)
    (tmp_path / "Makefile").write_text("this is no rule\n")
    with pytest.raises(pytest.fail.Exception, match=r"make build/release/\.stamp fails: .*missing separator"):
        release_python(tmp_path)
    (tmp_path / "Makefile").write_text("build/release/.stamp:\n\t@true\n")
    assert release_python(tmp_path) == tmp_path / "build/release/bin/python"


def test_without_make_there_is_nothing_to_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="not installed: make"):
        release_python(tmp_path)
