"""Serving engines that take most of what the driver says that there is, side by side."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests import emulated
from tests.cuda.pytorch.rig import PROGRAMS, Alone, differing, together
from tests.cuda.rig import Daemons
from tests.devices.cuda_stub import Stub
from tests.e2e.test_engines import Front, completed, free_port, until_it_answers
from tests.live import python_path

CAPACITY = 64 * MIB
CONTEXT = "2MiB"
SHARE = 0.8  # of the device, that an engine has at least: nine tenths, without its context
PROMPTS = ["a question", "another", "and one more"]
STAYS = "tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves"


@pytest.mark.nightly("half a minute of PyTorch", stays=STAYS)
def test_two_engines_that_each_fill_the_device_run_side_by_side(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started in the same second; each finds the device as if it were alone there, and what it keeps stays right.

    A context takes less than a tenth of it, as on cards that serve.
    """
    monkeypatch.setenv("EMULATOR_CONTEXT", CONTEXT)
    size = f"{CAPACITY // MIB}MiB"
    alone = Alone(tmp_path, size, EMULATOR_CONTEXT=CONTEXT)
    scripts = [f"engine {seed} 20" for seed in (1, 2)]
    jobs = together(daemons(f"cuda:0:{size}"), scripts, keep=True)
    results = zip(scripts, jobs, strict=True)
    assert [differing(job.result(), alone.result(script)) for script, job in results] == [[], []]
    assert all(job.info().residue_bytes > CAPACITY // 2 and job.info().switches > 3 for job in jobs)


@pytest.mark.nightly(
    "half a minute of PyTorch", stays="tests/cuda/test_made_memory.py::test_made_memory_moves_with_its_job"
)
def test_engines_with_memory_of_their_own_making_move_and_sleep(daemons: Daemons, tmp_path: Path) -> None:
    """Two do not fit; each has its weights, and addresses, at every turn, also after it was asleep."""
    library = tmp_path / "libsleeping.so"
    source = Path(__file__).with_name("sleeping_allocator.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    engine = {"SLEEPING_ALLOCATOR": str(library)}
    alone = Alone(tmp_path, "512MiB", **engine)
    scripts = [f"sleeper {seed} 20" for seed in (1, 2)]
    jobs = together(daemons(f"cuda:0:{CAPACITY // MIB}MiB"), scripts, keep=True, env=engine)
    results = zip(scripts, jobs, strict=True)
    assert [differing(job.result(), alone.result(script)) for script, job in results] == [[], []]
    assert all((job.info().fixed_bytes, job.info().alone) == (0, None) for job in jobs)
    assert all(job.info().moved.in_bytes > 32 * MIB for job in jobs)


def command(port: str, seed: int) -> list[str]:
    return [emulated.PYTHON, str(PROGRAMS / "answering.py"), port, str(seed)]


def answers_alone(environment: Mapping[str, str], seed: int) -> list[str]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    with subprocess.Popen(command(str(port), seed), env=environment) as engine:
        try:
            until_it_answers(engine, url)
            return [completed(url, "", prompt) for prompt in PROMPTS]
        finally:
            engine.terminate()


@pytest.mark.nightly("a minute of PyTorch", stays=STAYS)
@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "one-after-the-other"])
def test_engines_behind_a_front_that_each_fill_the_device(
    daemons: Daemons, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Each comes up with the cache that it has alone, and answers as alone."""
    monkeypatch.setenv("EMULATOR_CONTEXT", CONTEXT)
    size, seeds = f"{CAPACITY // MIB}MiB", {"one": 1, "other": 2}
    with ThreadPoolExecutor(len(seeds)) as callers:
        places = [emulated.on_gpus(size, tmp_path / name) | {"EMULATOR_CONTEXT": CONTEXT} for name in seeds]
        alone = [*callers.map(answers_alone, places, seeds.values())]
        environment = emulated.clean() | stub.environment() | {"PYTHONPATH": python_path()}
        tables = {name: {"cmd": command("{port}", seed)} for name, seed in seeds.items()}
        front = Front(daemons(f"cuda:0:{size}"), environment, tables)
        try:
            first = [*(callers.map if at_once else map)(lambda name: front.complete(name, PROMPTS[0]), seeds)]
            others = [[front.complete(name, prompt) for prompt in PROMPTS[1:]] for name in seeds]
            found = [[text, *texts] for text, texts in zip(first, others, strict=True)]
            jobs = [front.daemon.client.job(front.job(name)) for name in seeds]
        finally:
            front.stop()
    assert found == alone
    assert all(job.persistent_bytes > SHARE * CAPACITY and job.residue_bytes == 0 for job in jobs)
