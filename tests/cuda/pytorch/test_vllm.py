"""vLLM's CUDA wheel, unmodified: two engines of nine tenths of one emulated GPU each.

Its kernels compute nothing there, those made by Triton among them: what is checked is that both come up, and the
sizes of their caches.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.protocol.engines import READY
from tests import emulated
from tests.cuda.pytorch.rig import NO_KERNELS
from tests.cuda.rig import Daemon, Daemons
from tests.devices.cuda_stub import Stub
from tests.e2e.test_engines import Front, Table
from tests.live import WORKLOADS
from tools.emulator.environment import VENV, libraries_of

VLLM = VENV / "bin" / "vllm"
OPTIONS = "--dtype=float16 --max-model-len=512 --enforce-eager --load-format=dummy --gpu-memory-utilization=0.9"
MEMORY = 1024 * MIB
CONTEXT = "8MiB"
START_S = 800
CACHE = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
#: There is no FlashInfer in this environment, Triton looks for the driver in the linker's cache, and no hub is asked.
SETTINGS = NO_KERNELS | {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "TRITON_LIBCUDA_PATH": str(libraries_of(VENV)),
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
pytestmark = [
    pytest.mark.nightly(
        "two servers whose imports take a minute",
        stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves",
    ),
    pytest.mark.skipif(not VLLM.exists(), reason="needs `make vllm-cuda` and EMULATED_GPU_VENV=.venv-vllm-cuda"),
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    command = [emulated.PYTHON, str(WORKLOADS / "tiny_llama.py"), str(tmp_path / "tiny")]
    libraries = {"LD_LIBRARY_PATH": str(libraries_of(VENV))}
    subprocess.run(command, env=emulated.clean() | libraries, check=True, capture_output=True)
    return tmp_path / "tiny"


def engine(name: str, model: Path, *, preload: bool) -> Table:
    command = [str(VLLM), "serve", str(model), "--port={port}", f"--served-model-name={name}", *OPTIONS.split()]
    return {"cmd": command, "preload": preload, "start_timeout": f"{START_S}s"}


def until_ready(front: Front, name: str, daemon: Daemon) -> None:
    """Return when the engine answers, which takes minutes on a busy machine."""
    deadline = time.monotonic() + START_S
    while (report := front.engine(name).report).state != READY:
        assert not report.reason and time.monotonic() < deadline, f"{report.reason}\n{daemon.story()}"
        time.sleep(0.2)


def cache_of(front: Front, name: str) -> int:
    """Return the tokens for which the engine has room, as its log says."""
    log = (front.daemon.home / "jobs" / str(front.job(name)) / "log").read_text()
    found = CACHE.search(log)
    assert found is not None, log
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("together", [True, False], ids=["in the same second", "one after the other"])
def test_two_servers_of_nine_tenths_of_the_gpu(
    daemons: Daemons, stub: Stub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setenv("EMULATOR_CONTEXT", CONTEXT)
    stub.devices(MEMORY)
    daemon = daemons("cuda:0")
    tables = {name: engine(name, model, preload=together or name == "first") for name in ("first", "second")}
    settings = emulated.clean() | stub.environment() | SETTINGS | {"HOME": str(tmp_path)}
    front = Front(daemon, settings, tables)
    try:
        until_ready(front, "first", daemon)
        daemon.client.wish_engine("second", "start")
        until_ready(front, "second", daemon)
        assert cache_of(front, "first") == cache_of(front, "second") > 0
    finally:
        front.stop()
