"""Training with PyTorch's CUDA build is, bit for bit, what the CPU computes: in turns, and with too little memory.

What draws random numbers on the device is compared with an emulated GPU of its own.  Losses do not show lost memory, so
there are programs that know the contents of all of theirs.
"""

from __future__ import annotations

import signal

import pytest

from carpool.core.model import MIB
from tests.cuda.pytorch.conftest import OnCpu
from tests.cuda.pytorch.rig import KNOWN, NO_KERNELS, SLOW_KERNELS, Alone, differing, in_turns, right, together
from tests.cuda.rig import Daemons
from tests.tiers import RARER_WAY, all_but_first

FAMILIES: list[list[str]] = [
    ["train 3 mlp gpt cnn", "train 3 bert vit unet"],
    ["train 6 mlp gpt cnn", "train 6 bert vit unet"],
    ["train 4 resnet densenet", "train 4 vgg mobilenet"],
]
#: Unmodified, and most of them draw random numbers on the device.
PUBLIC = [
    ["whole characters --max_iters=4", "whole autoencoder --epochs 2"],
    ["whole digits --epochs 1", "whole segment --amp --epochs 1 --batch-size 1"],
    ["whole images --arch mobilenet --epochs 1", "whole patches"],
    ["whole tune", "whole words"],
]
#: Of `tests/workloads`, without `fork_child`: a child that is forked after CUDA has begun can use none.
CONFORMANCE = [
    ["conformance grad_scaler two_models lbfgs", "conformance threads ema cache accumulation"],
    ["conformance compiled:aot_eager adam checkpoints", "conformance evaluation zero_grad:after zero_grad:keep sgd"],
    ["conformance gan by_hand handlers:faulthandler exec_storm", "conformance exception loader:fork handlers:handler"],
    ["conformance io_calls zero_grad:before handlers:blocked", "conformance unusual loader:spawn"],
]
CAPACITY = 96 * MIB


@pytest.mark.parametrize("scripts", all_but_first(FAMILIES), ids=" and ".join)
def test_families_of_models_in_turns(daemons: Daemons, cpu: OnCpu, scripts: list[str]) -> None:
    jobs = in_turns(daemons(), scripts, cpu, **KNOWN)
    assert len({job.info().lane for job in jobs}) == 1


@pytest.mark.nightly(RARER_WAY, stays="test_families_of_models_in_turns")
def test_families_that_compute_otherwise_on_a_gpu_in_turns(daemons: Daemons, alone: Alone) -> None:
    """They draw random numbers there, or have cells that the CPU adds up in another order."""
    in_turns(daemons(), ["train 6 vae lstm", "train 6 lstm vae"], alone.result, **KNOWN)


@pytest.mark.nightly("three quarters of a minute of PyTorch", stays="test_families_of_models_in_turns")
@pytest.mark.parametrize("scripts", PUBLIC, ids=" and ".join)
def test_public_scripts_in_turns(daemons: Daemons, alone: Alone, scripts: list[str]) -> None:
    in_turns(daemons(), scripts, alone.result, **KNOWN)


@pytest.mark.nightly(RARER_WAY, stays="test_families_of_models_in_turns")
@pytest.mark.parametrize("scripts", CONFORMANCE, ids=" and ".join)
def test_conformance_workloads_in_turns(daemons: Daemons, alone: Alone, scripts: list[str]) -> None:
    in_turns(daemons(), scripts, alone.result, **KNOWN)


@pytest.mark.contents
def test_contents_of_memory_in_turns(daemons: Daemons) -> None:
    """Those of the private pools of graphs, too."""
    in_turns(daemons(), [f"integrity {seed} 60 8 2" for seed in (1, 2, 3)], right, **KNOWN)


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays="test_contents_of_memory_in_turns")
def test_copies_under_way_when_a_turn_ends(daemons: Daemons) -> None:
    in_turns(daemons(), ["under_way 1 60", "under_way 2 60"], right, **KNOWN)


@pytest.mark.contents
@pytest.mark.nightly(RARER_WAY, stays="test_contents_of_memory_in_turns")
def test_a_queue_of_kernels_when_a_turn_ends(daemons: Daemons) -> None:
    """Kernels take their time, and the holder is ahead of them: the turn waits for the copies behind them."""
    in_turns(daemons(), ["ahead 1 120", "ahead 2 120"], right, env=SLOW_KERNELS, **KNOWN)


@pytest.mark.contents
def test_contents_of_memory_that_moves(daemons: Daemons) -> None:
    """Two jobs of which each needs most of the device, while they capture graphs, too."""
    daemon = daemons(f"cuda:0:{CAPACITY // MIB}MiB")
    scripts = [f"integrity {seed} 40 14 2" for seed in (1, 2)]
    jobs = in_turns(daemon, scripts, right, persistent_bytes=72 * MIB, ephemeral_bytes=16 * MIB)
    assert sum(job.info().moved.out_bytes for job in jobs) > CAPACITY


@pytest.mark.contents
def test_contents_outlive_the_daemon_and_a_neighbour(daemons: Daemons) -> None:
    daemon = daemons()
    scripts = ["integrity 4 150 8", "integrity 5 150 8", "integrity 6 100000 8"]  # the last one never ends by itself
    *jobs, victim = together(daemon, scripts, env=NO_KERNELS, **KNOWN)
    daemon.until(lambda: victim.info().iterations > 5)
    daemon.kill()
    daemon.start()
    victim.signal(signal.SIGKILL)
    assert [differing(job.result(), right("")) for job in jobs] == [[], []]
    assert victim.wait().outcome == "failed"
