"""The library alone: real scripts with a stand-in for the daemon, programs of another C library, larger pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import BareRuns, Workload, python_path
from tests.native.arbiter import LIBRARY, ROOT, Arbiter, Job
from tests.tiers import all_but_first

SITE = ROOT / "src" / "carpool" / "runtime" / "site"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRuns]:
    """With the whole PyTorch."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("CARPOOL_")}
    runner = BareRuns(ours | THREADS | {"PYTHONPATH": ""}, tmp_path_factory.mktemp("bare"))
    yield runner
    runner.close()


def shared(
    names: list[str], directory: Path, look: Callable[[Arbiter], object] = lambda _: None, **options: object
) -> tuple[list[dict[str, Any]], Arbiter]:
    arbiter = Arbiter(**options)  # type: ignore[arg-type]
    try:
        outs = [directory / f"shared{i}.json" for i in range(len(names))]
        for name, out in zip(names, outs, strict=True):
            env = THREADS | {"PYTHONPATH": python_path(SITE, ROOT / "src")}
            arbiter.start(Workload.named(name).command(out)[1:], env)
        assert arbiter.run(look) == [0] * len(names)
        return [json.loads(out.read_text()) for out in outs], arbiter
    finally:
        arbiter.close()


def overlapping(name: str, bare: BareRuns, directory: Path, seen: Callable[[Job], bool], **options: object) -> None:
    """Two jobs of one script end with the results of a run alone, and ``seen`` holds for both."""
    results, arbiter = shared([name, name], directory, **options)
    assert results == [bare.result(Workload.named(name))] * 2
    words = ("turns", "promoted", "p_peak", "e_peak")
    assert all(map(seen, arbiter.jobs)), [[(word, job.seat.get(word)) for word in words] for job in arbiter.jobs]


def test_turns_at_every_iteration(bare: BareRuns, tmp_path: Path) -> None:
    overlapping("adam", bare, tmp_path, lambda job: job.seat.get("turns") > 30)


def test_turns_taken_at_random_instructions(bare: BareRuns, tmp_path: Path) -> None:
    """They go on until that has happened to both, however quick the machine is."""
    release = tmp_path / "release"

    def look(arbiter: Arbiter) -> None:
        if all(job.seat.get("forced") > 5 for job in arbiter.jobs):
            release.touch()

    results, _ = shared([f"steady busily {release}"] * 2, tmp_path, look, forced_us=7_000, always_yield=False)
    assert results == [bare.result(Workload("steady", ("count", str(result["count"])))) for result in results]


#: Bytes of persistent memory that a script has only with what outlives its iterations: ema's weights are 340 kB.
WITH_ALL = {"ema": 3 << 19, "lbfgs": 2 << 20, "cache": 2 << 20}


@pytest.mark.parametrize("script", all_but_first(["ema", "lbfgs", "cache"]))
def test_what_outlives_iterations_becomes_persistent(bare: BareRuns, tmp_path: Path, script: str) -> None:
    def placed(job: Job) -> bool:
        return job.seat.get("promoted") > 0 or job.seat.get("p_peak") > WITH_ALL[script]  # moved, or put there at once

    overlapping(script, bare, tmp_path, placed)


# ---- oversubscription: offloaded after every turn, the bank overwritten ----------------------------------------------

#: In each of two ways half of the workloads that end by themselves with the same result in every run, four at a time on
#: one lane; two before.  `e2e/test_oversubscribed` has them with a daemon.
AT_SWITCHES = [
    ["adam", "cache"],
    ["accumulation", "adam", "cache", "checkpoints"],
    ["grad_scaler", "lbfgs", "loader fork", "fork_child"],
]
AT_INSTRUCTIONS = [
    ["adam", "cache"],
    ["ema", "evaluation", "exception", "gan"],
    ["two_models", "unusual", "zero_grad keep", "sgd"],
]


def all_come_back(names: list[str], bare: BareRuns, directory: Path, **options: object) -> None:
    results, arbiter = shared(names, directory, oversubscribed=True, **options)
    assert results == [bare.result(Workload.named(name)) for name in names]
    assert all(job.seat.get("out_bytes") >= job.seat.get("in_bytes") > 0 for job in arbiter.jobs if job.offloads > 1)
    assert sum(job.offloads for job in arbiter.jobs) > 8


@pytest.mark.parametrize("names", all_but_first(AT_SWITCHES), ids=lambda names: names[0])
def test_offloaded_at_every_switch(bare: BareRuns, tmp_path: Path, names: list[str]) -> None:
    all_come_back(names, bare, tmp_path)


@pytest.mark.parametrize("names", all_but_first(AT_INSTRUCTIONS), ids=lambda names: names[0])
def test_offloaded_at_random_instructions(bare: BareRuns, tmp_path: Path, names: list[str]) -> None:
    all_come_back(names, bare, tmp_path, forced_us=9_000, always_yield=False)


SOURCE = Path(__file__).with_name("musl_program.c")
#: Of a job, without the daemon: nothing of it may be looked at.
JOB = {"CARPOOL_JOB": "1", "CARPOOL_JOB_FD": "0", "CARPOOL_HOME": "/nowhere", "CARPOOL_CUDA_DEVICE": "0"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("musl-gcc") is None:
        pytest.skip("not installed: musl-gcc (Debian: musl-tools)")
    path = tmp_path_factory.mktemp("musl") / "program"
    subprocess.run(["musl-gcc", "-Wall", "-Wextra", "-Werror", "-O2", str(SOURCE), "-o", str(path)], check=True)
    return path


def run(command: list[str | Path], **variables: str) -> tuple[int, str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "LD_"))}
    done = subprocess.run(
        command, env=plain | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("variables", [{}, JOB], ids=["preloaded", "as in a job"])
@pytest.mark.parametrize("arguments", [[], ["exit", "7"], ["kill", "15"]], ids=["all", "exit", "kill"])
def test_a_program_is_as_it_is_without_the_library(
    program: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    preloaded = run([program, *arguments], LD_PRELOAD=str(LIBRARY), **variables)
    assert preloaded == run([program, *arguments], **variables)
    assert preloaded[0] == {"exit": 7, "kill": -15}.get(arguments[0] if arguments else "", 0) and not preloaded[2]


def test_no_handler_no_thread_and_no_descriptor_is_left(program: Path) -> None:
    _, state, _ = run([program, "state"], LD_PRELOAD=str(LIBRARY), **JOB)
    assert {"Threads:\t1", "SigCgt:\t0000000000000000", "fd 0", "fd 1", "fd 2"} <= set(state.splitlines())
    assert "fd 3" not in state


#: What such a kernel says, for a kernel that cannot be had here.
LARGE_PAGES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
long sysconf(int name) {
  long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_PAGESIZE ? 65536 : next(name);
}
"""
ATTACH = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.cp_error.restype = ctypes.c_char_p
print(library.cp_attach(-1), library.cp_error().decode())
"""


def attached(**environment: str) -> str:
    command = [sys.executable, "-IS", "-c", ATTACH, str(LIBRARY)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_process_on_a_kernel_with_large_pages_does_not_attach(tmp_path: Path) -> None:
    preloaded = tmp_path / "large_pages.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(preloaded), "-x", "c", "-"]
    subprocess.run(command, input=LARGE_PAGES, text=True, check=True)
    assert os.sysconf("SC_PAGESIZE") == 4096
    assert "pages" not in attached()
    assert attached(LD_PRELOAD=str(preloaded)).startswith("-1 Carpool needs a kernel with pages of 4 KiB")
