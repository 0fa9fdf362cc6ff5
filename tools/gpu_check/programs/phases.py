"""Takes more and more of a GPU: says each phase, and waits for a line before the next: ``phases.py``."""

from __future__ import annotations

import sys

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice


def reached(phase: str) -> None:
    print(phase, flush=True)
    sys.stdin.readline()


def main() -> None:
    driver.start()
    reached("driver")
    gpu = DriverDevice(0)
    driver.call("cuDevicePrimaryCtxRetain", 0)
    reached("context")
    gpu.stream()
    reached("stream")
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    values = torch.ones(64, 64, device="cuda")
    reached("PyTorch")
    torch.mm(values, values)
    torch.cuda.synchronize()
    reached("cuBLAS")
    torch.nn.functional.conv2d(values.view(1, 1, 64, 64), values[:3, :3].reshape(1, 1, 3, 3))
    torch.cuda.synchronize()
    reached("cuDNN")


if __name__ == "__main__":
    main()
