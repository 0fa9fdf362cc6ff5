"""Notebooks on a GPU: two kernels whose tensors do not fit together, and contents that are checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import ipykernel
import pytest

from carpool.core.model import MIB
from tests import emulated
from tests.cuda.rig import Daemon, Daemons
from tests.devices.cuda_stub import Stub
from tests.notebooks.notebook import Notebook, install_kernel
from tests.tiers import RARER_WAY
from tools.emulator.environment import VENV

CAPACITY_MIB, TABLE_MIB = 96, 56
TABLE = f"import torch; table = torch.arange({TABLE_MIB} << 18, dtype=torch.int32, device='cuda')"
STEP = "table.add_({}); torch.cuda.synchronize()"
WRONG = "(table.cpu() != torch.arange(table.numel(), dtype=torch.int32) + {}).sum().item()"


@pytest.fixture
def kernels_packages(tmp_path: Path) -> Path:
    """What a kernel needs besides what the emulated GPU's environment has."""
    (theirs,) = Path(VENV, "lib").glob("python*/site-packages")
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(ipykernel.__path__[0]).parent.iterdir():
        if not (theirs / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return packages


@pytest.fixture
def notebooks(
    daemons: Daemons, stub: Stub, kernels_packages: Path, tmp_path: Path
) -> Iterator[tuple[Daemon, list[Notebook]]]:
    daemon = daemons(f"cuda:0:{CAPACITY_MIB}MiB")
    own = {"PYTHONPATH": str(kernels_packages), "CARPOOL_HOME": str(daemon.home), "IPYTHONDIR": str(tmp_path / "i")}
    environment = emulated.clean() | stub.environment() | own
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JUPYTER_PATH", str(install_kernel(tmp_path / "jupyter", emulated.PYTHON, environment)))
        opened = [Notebook(environment) for _ in range(2)]
        for notebook in opened:
            stack.callback(notebook.close)
        yield daemon, opened


@pytest.mark.nightly(RARER_WAY, stays="tests/cuda/pytorch/test_training.py::test_contents_of_memory_that_moves")
def test_two_notebooks_on_a_gpu_that_is_too_small(notebooks: tuple[Daemon, list[Notebook]]) -> None:
    daemon, (first, second) = notebooks
    for number, notebook in enumerate((first, second)):
        notebook.run(TABLE)
        notebook.run(STEP.format(number + 1))
    assert [first.run(WRONG.format(1)), second.run(WRONG.format(2)), first.run(WRONG.format(1))] == ["0", "0", "0"]
    assert sum(job.moved.out_bytes for job in daemon.client.jobs()) >= 2 * TABLE_MIB * MIB
