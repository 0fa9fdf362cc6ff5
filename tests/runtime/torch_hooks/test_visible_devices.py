"""PyTorch counts the devices that libcarpool shows, before it uses one.

There is no GPU here: what NVML and libcarpool say is made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from carpool.runtime.torch_hooks import visible_devices

if TYPE_CHECKING:
    from tests.runtime.conftest import Job

FAKE_CUDA = "import os\ndef _parse_visible_devices(): return os.environ.get('CUDA_VISIBLE_DEVICES')\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With three GPUs; the script has written that it wants the last one and one that is not there."""
    monkeypatch.setattr(torch.cuda, "_parse_visible_devices", torch.cuda._parse_visible_devices)
    monkeypatch.setattr(torch.cuda, "_raw_device_uuid_nvml", lambda: ["GPU-a", "GPU-b", "GPU-c"])
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")


@pytest.mark.parametrize(
    ("shown", "count"),
    [(b"GPU-b", 1), (b"GPU-c,GPU-a", 2), (b"", 0), (b"MIG-a", -1), (None, 1)],
    ids=["one", "two", "none", "the driver counts instances", "what is written"],
)
def test_what_libcarpool_shows(shown: bytes | None, count: int) -> None:
    visible_devices.watch(torch.cuda, lambda: shown)
    assert torch.cuda._device_count_nvml() == count


def test_nvml_is_asked_about_the_device_that_is_shown() -> None:
    visible_devices.watch(torch.cuda, lambda: b"GPU-c,GPU-b")
    assert [torch.cuda._get_nvml_device_index(number) for number in (0, 1)] == [2, 1]


@pytest.mark.parametrize(("device", "counted"), [("GPU-1", "['GPU-1']"), ("", "7")])
@pytest.mark.parametrize("answer", ["0", "1"])  # "1": the process gets no seat
def test_in_jobs_on_cuda_devices_only(job: Job, device: str, counted: str, answer: str) -> None:
    torch = job.directory / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("from . import _C, cuda\n")
    (torch / "_C.py").touch()
    (torch / "cuda.py").write_text(FAKE_CUDA)
    script = "import torch.cuda; print(torch.cuda._parse_visible_devices())"
    done = job.run(script, CARPOOL_CUDA_DEVICE=device, CP_VISIBLE="GPU-1", CUDA_VISIBLE_DEVICES="7", CP_ANSWER=answer)
    assert done.out == f"{counted}\n", done.err
