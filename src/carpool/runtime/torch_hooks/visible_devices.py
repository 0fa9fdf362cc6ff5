"""The devices that PyTorch counts before it uses one: those the process will see, whatever the script has set.

PyTorch looks for them in the environment and among all GPUs that NVML knows; libcarpool knows what the driver will say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def watch(cuda: Any, seen: Callable[[], bytes | None]) -> None:
    """Make PyTorch count the devices that libcarpool reports.

    ``cuda``: `torch.cuda`; ``seen``: names of devices, or None where Carpool decides nothing.
    """
    written = cuda._parse_visible_devices

    def parse_visible_devices() -> list[int] | list[str]:
        names = seen()
        return written() if names is None else [name for name in names.decode().split(",") if name]

    cuda._parse_visible_devices = parse_visible_devices
