"""Signals in a job's own code: a request for memory is withdrawn, a handler touches tensors, a crash leaves a dump."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.watching import MIB, until

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons, Running
    from tests.live import Workload
import subprocess

import pytest

from tests.live import WORKLOADS
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon
    from tests.live import Workload
import json
import mmap
import resource
from hashlib import sha256

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemons
    from tests.live import Workload


KEPT, USED = 60, 8


def asked(daemon: Daemon, job: Running, size: int) -> bool:
    events = (event for event in daemon.client.events() if event.job == job.id and event.kind == "MemoryRequested")
    return any(event.data["total"] >= size for event in events)


def test_another_class_can_be_had_instead(daemons: Daemons, workload: type[Workload], tmp_path: Path) -> None:
    """What it waited for stays with another job, which cannot be moved: there is no room in the host store."""
    daemon, release = daemons("host:96MiB", store="1MiB"), tmp_path / "release"
    os.mkfifo(release)
    holder = daemon.submit_taking(f"import torch; kept = torch.ones({49 * MIB // 4}); open({str(release)!r}).read()")
    until(lambda: asked(daemon, holder, 49 * MIB) and holder.info().persistent_bytes >= 49 * MIB, daemon)
    job = daemon.submit(workload("withdraws", (str(KEPT), str(USED))))
    until(lambda: asked(daemon, job, KEPT * MIB), daemon)
    job.signal(signal.SIGINT)
    assert job.result() == {"how": "interrupted", "last": 1}
    assert holder.info().phase == "running" and not holder.info().offloaded
    kinds = [event.kind for event in daemon.client.events() if event.job == job.id]
    assert "RequestWithdrawn" in kinds and kinds.count("GrantMemory") >= 1
    release.write_text("")
    assert holder.wait().outcome == "succeeded"


@pytest.fixture(scope="session")
def timer_handler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that `timer_handler.py` wants."""
    library = tmp_path_factory.mktemp("handlers") / "timer_handler.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(WORKLOADS / "timer_handler.c")]
    subprocess.run(command, check=True)
    return str(library)


@pytest.mark.parametrize("iterations", all_but_first([60, 150]))
def test_a_handler_that_touches_a_tensor_at_any_instant(
    bare: Bare, eager_daemon: Daemon, workload: type[Workload], timer_handler: str, iterations: int
) -> None:
    workloads = [workload("timer_handler", (timer_handler, str(iterations))), workload("adam")]
    jobs, expected = eager_daemon.run_together(workloads, bare, together=True)
    assert [job.result() for job in jobs] == expected
    assert expected[0]["interrupted"] and expected[0]["complete"]
    assert jobs[0].info().switches >= 3


PAGE = 4096
#: Parts of the names of their files.
KINDS = ("lane", "bank", "store", "weights", "model")


def page_of(kind: str) -> bytes:
    """As in `tests/workloads/dumped.py`."""
    return sha256(kind.encode()).digest()[:4] * (PAGE // 4)


def cores_are_files() -> bool:
    """In the job's directory, with a name that begins so."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    return pattern.startswith("core") and "/" not in pattern and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def test_core_dumps_leave_out_lanes_and_weights(daemons: Daemons, workload: type[Workload]) -> None:
    daemon = daemons("host:64MiB")
    job = daemon.submit_script(workload("dumped"), service=1)
    assert job.wait().signal == signal.SIGABRT, job.log()
    mappings = json.loads(job.out.read_text())
    assert {kind: any(kind in name for name in mappings) for kind in KINDS} == dict.fromkeys(KINDS, True)
    assert all(mappings.values()), mappings
    if cores_are_files():
        (core,) = daemon.home.glob("core*")
        with core.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            assert content.find(sha256(b"heap").digest() * 128) >= 0
            assert [content.find(page_of(kind)) for kind in ("tensor", "weights")] == [-1, -1]
