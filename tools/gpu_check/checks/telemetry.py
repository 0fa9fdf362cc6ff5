"""What the daemon measures, against what the driver's own tool says."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from carpool.telemetry.readers import sees_all_processes
from tools.gpu_check.registry import Figures, Needs, Skip, check, needs_packages, require
from tools.gpu_check.scripts import needs_cuda

if TYPE_CHECKING:
    from carpool.telemetry.gpus import GpuReaders

MIB = 1 << 20
FIELDS = "memory.total,memory.used,power.draw,temperature.gpu,mig.mode.current"
#: Between the two readings the device goes on.
SLACK_MIB, SLACK_C = 64, 5
TENSOR_MIB = 256
RESERVED = 0.95  # of the memory that the one counts and the other does not


@check("telemetry says what PyTorch says: memory, how much more a tensor takes; it sees this process", Needs.TORCH)
def telemetry_against_pytorch() -> Figures:
    needs_cuda()
    import torch

    gpus, uuid = readers(), uuid_by_pytorch()
    before = gpus.sample(uuid, 0)
    time.sleep(0.3)  # the counters of the multiprocessors are read as differences
    kept = torch.ones(TENSOR_MIB * MIB, dtype=torch.uint8, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    sample = gpus.sample(uuid, 300_000)
    gpus.close()
    del kept
    require(
        sample.total_bytes is not None and sample.used_bytes is not None, "it does not say how much memory there is"
    )
    assert sample.total_bytes is not None and sample.used_bytes is not None
    share = sample.total_bytes / total
    require(RESERVED <= share <= 1 / RESERVED, f"NVML says {sample.total_bytes} bytes in all, PyTorch {total}")
    more = (sample.used_bytes - (before.used_bytes or 0)) / MIB
    require(more >= TENSOR_MIB - SLACK_MIB, f"a tensor of {TENSOR_MIB} MiB makes {more:.0f} MiB")
    if sees_all_processes():
        pids = [process.pid for process in sample.processes or ()]
        require(os.getpid() in pids, f"it sees the processes {pids}, and not this one, {os.getpid()}")
    return {"level gpm": float(sample.level.value == "gpm"), "NVML's memory / PyTorch's": share, "MiB more": more}


def readers() -> GpuReaders:
    """Raises Skip."""
    needs_packages("pynvml", "msgspec")
    from carpool.telemetry.gpus import GpuReaders

    return GpuReaders()


def uuid_by_pytorch() -> str:
    """Of the GPU that PyTorch calls 0, whatever its number is on the bus."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


@check(
    "telemetry says what nvidia-smi says: memory, temperature, MIG; it sees this process; power is shown", Needs.TORCH
)
def telemetry_against_nvidia_smi() -> Figures:
    needs_cuda()
    import torch

    gpus, uuid = readers(), uuid_by_pytorch()
    kept = torch.ones(256 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    total, used, power, temperature, mig = smi(uuid, FIELDS)
    gpus.sample(uuid, 0)
    time.sleep(0.3)  # the counters of the multiprocessors are read as differences
    sample = gpus.sample(uuid, 300_000)
    gpus.close()
    del kept
    require(
        sample.total_bytes is not None and abs(sample.total_bytes / MIB - float(total)) <= SLACK_MIB, "total memory"
    )
    require(sample.used_bytes is not None and abs(sample.used_bytes / MIB - float(used)) <= SLACK_MIB, "memory in use")
    require(
        sample.temperature_c is not None and abs(sample.temperature_c - float(temperature)) <= SLACK_C, "temperature"
    )
    require((mig == "Enabled") == bool(sample.mig), f"nvidia-smi says of MIG {mig}, it says {sample.mig}")
    if sees_all_processes():
        require(bool(sample.processes), "it sees no process, although this one uses the device")
    figures = {"level gpm": float(sample.level.value == "gpm"), "processes": float(len(sample.processes or ()))}
    if not power.startswith("["):  # [N/A]
        figures |= {"W by nvidia-smi": float(power), "W": (sample.power_mw or 0) / 1e3}
    return figures


def smi(uuid: str, what: str) -> list[str]:
    """Raises Skip."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", f"--id={uuid}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skip(f"nvidia-smi cannot be run: {error}") from None
    return [field.strip() for field in done.stdout.splitlines()[0].split(",")]
