"""Fixtures: the stub NVML, built once, with values that each test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stub.nvml.build import build_nvml
from tests.stub.nvml.values import StubNvml, stubbed


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(nvml_library: Path, tmp_path: Path) -> Iterator[StubNvml]:
    with stubbed(nvml_library, tmp_path / "values") as stub:
        yield stub
