"""The stub driver for the checks that need no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stub.build import build_driver


@pytest.fixture(scope="session")
def stub_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))
