"""A job that crashes leaves a core dump without the memory of its tensors, which would fill the machine's memory."""

from __future__ import annotations

import json
import mmap
import resource
import signal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemons
    from tests.live import Workload

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
