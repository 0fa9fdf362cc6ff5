"""One step of training: what the gate has counted, and what others have seen of it, as JSON: ``counted.py FUNCTIONS``.

{"gate": calls that it stood before, "profiler": kernels, copies and fills that torch.profiler saw on the device,
"driver": an emulated driver's own count of such calls, "device": its name}
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections import Counter
from pathlib import Path

from begun import plain
from symbols import SYMTAB, address_of

WORK = re.compile(r"^CP_WORK(?:_PTSZ|_PTDS)?\((cu\w+)", re.MULTILINE)


class Thread(ctypes.Structure):
    """``struct cp_thread`` (src/native/cuda/gate.h)."""

    _fields_ = [
        ("seq", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("taken", ctypes.c_uint32),
        ("following", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
    ]


def gate() -> int:
    """Calls so far, of all threads: each counts twice, when it begins and when it ends."""
    calls, at = 0, ctypes.c_void_p.from_address(address_of("cp_threads", "libcarpool", SYMTAB)).value
    while at:
        thread = Thread.from_address(at)
        calls, at = calls + thread.seq // 2, thread.next
    return calls


def driver(functions: Path) -> int | None:
    """Calls that submit work, as an emulated driver has counted them."""
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "stub_calls"):
        return None
    library.stub_calls.restype = ctypes.c_ulong
    return sum(
        library.stub_calls(name.encode()) for name in {plain(call) for call in WORK.findall(functions.read_text())}
    )


def main(functions: Path) -> None:
    import torch
    from torch import nn
    from torch.autograd import DeviceType

    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    batch = torch.randn(16, 64)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        net(batch.cuda()).square().mean().backward()
        optimizer.step()

    for _ in range(3):  # until nothing is allocated any more
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile() as profiled:
        before = gate(), driver(functions)
        step()
        torch.cuda.synchronize()
        after = gate(), driver(functions)
    there = [event for event in profiled.events() if event.device_type == DeviceType.CUDA]
    seen = Counter(event.name for event in there if not getattr(event, "is_user_annotation", False))
    calls = [None if one is None or other is None else other - one for one, other in zip(before, after, strict=True)]
    found = {"gate": calls[0], "driver": calls[1], "profiler": sum(seen.values()), "names": seen}
    print(json.dumps(found | {"device": torch.cuda.get_device_name(0)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
