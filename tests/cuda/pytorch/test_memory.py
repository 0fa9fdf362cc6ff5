"""PyTorch's caching allocator in a job: its cache makes room before the job waits, and nobody reads of an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests.cuda.pytorch.rig import differing, in_turns, right
from tests.cuda.rig import Daemons

CAPACITY = 96 * MIB
#: The first process gets no context, as if another program had taken the memory meanwhile.
REFUSED_ONCE = 'mkdir "$0" && export EMULATOR_FAIL=cuDevicePrimaryCtxRetain=2; exec "$@"'
#: What PyTorch sets for itself.
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def test_a_cache_makes_room_without_a_warning(daemons: Daemons) -> None:
    """The job is alone: without its cache there is room."""
    job = daemons(f"cuda:0:{CAPACITY // MIB}MiB").submit(
        "cache 44 60", persistent_bytes=8 * MIB, ephemeral_bytes=8 * MIB
    )
    assert job.result() == {"right": True, "num_alloc_retries": 0, "num_ooms": 0}
    assert "OOM" not in job.log()


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_cache_makes_room_without_a_warning"
)
def test_contents_without_a_cache(daemons: Daemons) -> None:
    """Each tensor is memory of the driver's; a failure to get some would be final."""
    daemon = daemons(f"cuda:0:{CAPACITY // MIB}MiB")
    scripts = [f"integrity {seed} 40 14" for seed in (7, 8)]
    jobs = in_turns(daemon, scripts, right, persistent_bytes=72 * MIB, ephemeral_bytes=16 * MIB, env=UNCACHED)
    assert [job.log() for job in jobs] == ["", ""]


@pytest.mark.nightly("half a minute of PyTorch", stays="test_a_cache_makes_room_without_a_warning")
def test_a_job_that_got_no_context_is_started_again_and_shares(daemons: Daemons, tmp_path: Path) -> None:
    daemon = daemons(f"cuda:0:{CAPACITY // MIB}MiB")
    other = daemon.submit("integrity 7 1000000 8")
    daemon.until(lambda: other.info().iterations > 3)
    job = daemon.submit("integrity 8 40 8", before=["sh", "-c", REFUSED_ONCE, str(tmp_path / "tried")])
    assert differing(job.result(), right("")) == []
    info = job.info()
    assert info.attempts[0].text == "ran out of memory: CUDA error: out of memory"
    assert (info.alone, other.info().phase) == (None, "running")
    daemon.end_all()
