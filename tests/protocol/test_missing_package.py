"""What is missing, and where, in words."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.protocol.missing_package import EXTRAS, extra_hint, lacks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("torch", "/v/python lacks torch: /v/python -m pip install torch"),
        ("torch.nn", "/v/python lacks torch.nn: /v/python -m pip install torch"),
        (
            "shop.models",
            "/v/python lacks shop.models: install it there (/v/python -m pip ...), or work from a directory",
        ),
        (None, "/v/python lacks a module that it does not name"),
    ],
)
def test_what_an_interpreter_lacks(module: str | None, says: str) -> None:
    assert lacks(module, "/v/python").startswith(says)


def source(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any] | None) -> None:
    """Carpool has been installed so; None: from an index, which keeps no note."""
    noted = None if made is None else json.dumps(made)
    distribution = SimpleNamespace(read_text=lambda name: noted)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: distribution)


def test_an_extra_comes_from_where_carpool_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout, wheel = tmp_path / "my checkout", tmp_path / "carpool-1-py3-none-any.whl"
    pip = f"{sys.executable} -m pip install"
    checkout.mkdir()
    wheel.touch()
    source(monkeypatch, {"url": checkout.as_uri(), "dir_info": {}})
    assert extra_hint("cuda") == f"{pip} '{checkout}[cuda]'"
    source(monkeypatch, {"url": checkout.as_uri(), "dir_info": {"editable": True}})
    assert extra_hint("cuda") == f"{pip} -e '{checkout}[cuda]'"
    source(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
    assert extra_hint("k8s") == f"{pip} '{wheel}[k8s]'"
    source(monkeypatch, {"url": "https://a.org/c.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}})
    assert extra_hint("cuda") == f"{pip} 'carpool[cuda] @ git+https://a.org/c.git@12ab'"
    source(monkeypatch, {"url": "https://a.org/c.whl", "archive_info": {}})
    assert extra_hint("cuda") == f"{pip} 'carpool[cuda] @ https://a.org/c.whl'"


@pytest.mark.parametrize("made", [None, {"url": "file:///gone/carpool", "dir_info": {}}])
def test_a_name_on_an_index_that_anybody_may_take_is_never_the_advice(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, Any] | None
) -> None:
    source(monkeypatch, made)
    assert extra_hint("report") == f"{sys.executable} -m pip install 'plotly>=6'"


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra: tuple(declared[extra]) for extra in EXTRAS} == EXTRAS


def test_no_source_advises_a_name_on_an_index() -> None:
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert [path for path in texts if re.search(r"pip install '?carpool\b(?!-VERSION)", path.read_text())] == []
