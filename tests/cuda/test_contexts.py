"""What a job takes of a GPU by using it at all: there is room for that before it starts, whatever others have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cuda.rig import Bare, Daemons, Program

#: Two of them leave less of the GPU than a context takes.
LARGE = "train --weights 82 --scratch 4 --iterations {} --seed {}"
FOR_LONG = 1_000_000


@pytest.mark.parametrize("measured", [True, False])
def test_a_job_that_finds_the_device_full_shares_it(
    nvml_library: Path, monkeypatch: pytest.MonkeyPatch, daemons: Daemons, bare: Bare, measured: bool
) -> None:
    if measured:
        monkeypatch.setenv(
            "LD_LIBRARY_PATH", os.pathsep.join([os.environ["LD_LIBRARY_PATH"], str(nvml_library.parent)])
        )
    daemon = daemons("cuda:0")
    others = [daemon.submit(LARGE.format(FOR_LONG, seed)) for seed in (1, 2)]
    for other in others:
        daemon.until_under_way(other)
    newcomer = daemon.submit(LARGE.format(30, 3))
    assert newcomer.result()["digest"] == bare.digest(Program.named(LARGE.format(30, 3)))
    assert not newcomer.info().attempts, "it ran out of memory"
    assert sum(other.info().moved.out_bytes for other in others) > 0
    assert [other.info().phase for other in others] == ["running", "running"]
    daemon.end_all()
