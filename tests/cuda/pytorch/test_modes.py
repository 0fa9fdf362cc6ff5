"""Each mode of docs/cuda.md, and ways to ask PyTorch for memory, with contents that are checked."""

from __future__ import annotations

import json

import pytest

from carpool.core.model import MIB
from tests.cuda.pytorch.conftest import MEMORY
from tests.cuda.pytorch.rig import KNOWN, differing, in_turns, right, together
from tests.cuda.rig import Daemons, stub_uuid
from tests.devices.cuda_stub import Stub
from tests.tiers import RARER_WAY

OUTSIDE = ["env", "-u", "LD_PRELOAD"]  # what it starts has nothing of Carpool in it
STAYS = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_in_turns"
TWO = [f"integrity {seed} 60 8 1" for seed in (1, 2)]


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_memory_that_is_closed_between_turns(daemons: Daemons) -> None:
    in_turns(daemons(options=["--debug-close-lanes"]), TWO, right, **KNOWN)


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_two_lanes_side_by_side(daemons: Daemons) -> None:
    options = ["--sharing=mps", "--policy=pack", "--set=max_lanes=2"]  # without an MPS server
    jobs = together(daemons(options=options), TWO, **KNOWN)
    assert [differing(job.result(), right("")) for job in jobs] == [[], []]
    assert len({job.info().lane for job in jobs}) == 2


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_a_checkpoint_job(daemons: Daemons) -> None:
    """It has nothing of Carpool in it, and takes turns with one that has."""
    daemon = daemons()
    guest = daemon.submit("integrity 3 150 8", checkpoint=True)
    other = daemon.submit("integrity 4 150 8", **KNOWN)
    assert [differing(job.result(), right("")) for job in (guest, other)] == [[], []]
    assert guest.info().checkpoint
    assert guest.info().switches >= 2


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_expandable_segments_are_turned_off(daemons: Daemons) -> None:
    job = daemons().submit("integrity 5 40 8", env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, **KNOWN)
    assert job.wait().outcome == "succeeded"
    assert job.log().count("expandable_segments") == 1, job.log()


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays="tests/runtime/torch_hooks/test_alloc_conf.py::test_calls_turn_nothing_on")
@pytest.mark.parametrize(
    "how",
    [
        "before call expandable_segments:True",
        "after native max_split_size_mb:64,expandable_segments:True",
        "before environment expandable_segments:True",
    ],
)
def test_expandable_segments_that_the_script_turns_on_stay_off(daemons: Daemons, how: str) -> None:
    """Their memory would all be persistent."""
    daemon = daemons()
    job = daemon.submit(f"expandable {how}", meet=True, **KNOWN)
    waiting = daemon.meeting.arrive(1)
    assert (job.info().alone, job.info().fixed_bytes) == (None, 0)
    daemon.meeting.go(waiting)
    assert job.wait().outcome == "succeeded", job.log()
    assert json.loads(job.out.read_text()) == right("")
    assert job.log().count("expandable_segments") == 1, job.log()


@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_pools_of_the_scripts_own(daemons: Daemons) -> None:
    in_turns(daemons(), [f"pools {seed} 60" for seed in (1, 2)], right, **KNOWN)


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_much_memory_from_the_driver_keeps_the_others_waiting(daemons: Daemons) -> None:
    """Pools of the driver's are neither limited nor moved."""
    daemon = daemons("cuda:0:128MiB")
    pooled = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    fixed = daemon.submit("growing 280 272", meet=True, env=pooled, **KNOWN)
    waiting = daemon.meeting.arrive(1)
    daemon.until(lambda: fixed.info().alone is not None)
    assert fixed.info().fixed_bytes >= 256 * MIB
    other = daemon.submit("integrity 6 40 8", **KNOWN)
    daemon.until(lambda: (reason := other.info().reason) is not None and reason.code == "exclusive")
    daemon.meeting.go(waiting)
    assert [differing(job.result(), right("")) for job in (fixed, other)] == [[], []]


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
def test_what_computes_outside_of_carpool_is_exclusive(daemons: Daemons) -> None:
    daemon = daemons(options=["--telemetry-interval=0.2s"])
    first = daemon.submit("integrity 3 150 8", before=OUTSIDE)
    daemon.until(lambda: "uses the device outside of Carpool" in (first.info().alone or ""))
    assert (differing(first.result(), right("")), first.info().checkpoint) == ([], False)


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays=STAYS)
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_child_process_takes_turns(daemons: Daemons, method: str) -> None:
    in_turns(daemons(), [f"children {method} integrity 7 60 8", "integrity 8 60 8"], right, **KNOWN)


#: What scripts write into CUDA_VISIBLE_DEVICES, and how many devices a job for one GPU then sees, and one for two.
VISIBLE = {
    "DELETED": (1, 2),
    "0": (1, 1),
    "1": (1, 1),
    "0,1": (1, 2),
    "7": (1, 2),
    stub_uuid(0): (1, 1),
    stub_uuid(1): (1, 1),
    "MIG-1": (1, 2),
    "EMPTY": (0, 0),
    "-1": (0, 0),
}


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays="tests/runtime/torch_hooks/test_visible_devices.py::test_what_libcarpool_shows")
@pytest.mark.parametrize(("gpus", "first"), [(1, "1"), (1, "EMPTY"), (2, "1")])
def test_a_job_sees_its_devices_whatever_the_script_writes(stub: Stub, daemons: Daemons, gpus: int, first: str) -> None:
    """The first value before PyTorch is imported, the others after that; before the first use of a device and after."""
    stub.devices(MEMORY, MEMORY)
    where = {"device": "cuda1"} if gpus == 1 else {}
    job = daemons("cuda:0", "cuda:1").submit(f"visible {first} {' '.join(VISIBLE)}", gpus=gpus, **where)
    expected = {value: counts[gpus - 1] for value, counts in VISIBLE.items()}
    assert job.result() == {"first": [expected[first]] * 6} | {value: [n] * 5 for value, n in expected.items()}
