"""Containers beside the daemons and scripts of `tests/e2e`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.running import Containers, skip_without_runc
from tests.e2e.conftest import bare, daemons, environment, jobs_environment, workload

__all__ = ["bare", "daemons", "environment", "jobs_environment", "workload"]


@pytest.fixture
def containers() -> Iterator[Containers]:
    """Ended before the daemons are."""
    skip_without_runc()
    made = Containers()
    yield made
    made.close()
