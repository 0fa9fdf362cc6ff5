"""Real daemons of Slurm's, real daemons of Carpool's, and the scripts of `tests/workloads`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from carpool.runtime import native
from tests.e2e.conftest import bare, environment, jobs_environment, workload
from tests.slurm.cluster import why_not
from tests.slurm.site import Site

__all__ = ["bare", "environment", "jobs_environment", "workload"]


class Sites(Protocol):
    """Starts a cluster; the arguments are those of `Site`."""

    def __call__(self, **options: Any) -> Site: ...


@pytest.fixture
def sites(jobs_environment: dict[str, str]) -> Iterator[Sites]:
    if why := why_not():
        pytest.skip(f"needs Slurm: {why}")
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")
    started: list[Site] = []

    def start(**options: Any) -> Site:
        started.append(Site(jobs_environment, **options))
        return started[-1]

    yield start
    for site in started:
        site.close()
