"""Computes with a tensor and with weights, says which mappings of their memory core dumps leave out, and crashes.

Each kind of memory is full of a number that stands nowhere else (`number`), the heap has some bytes of its own.
"""

import json
import os
import re
import resource
import sys
from hashlib import sha256
from pathlib import Path

import torch

from carpool.serve.model import seat_device
from carpool.serve.model.image_store import write_image
from carpool.serve.model.native_groups import Groups
from carpool.serve.plan.manifest import lay_out

SIZE = 4 << 20
HEAP = sha256(b"heap").digest() * 128


def filled(kind: str) -> torch.Tensor:
    number = int.from_bytes(sha256(kind.encode()).digest()[:4], "little", signed=True)
    return torch.full((SIZE // 4,), number, dtype=torch.int32)


def loaded() -> Groups:
    """Weights on the device, in a turn that computes with them."""
    layout = lay_out([SIZE], [[0]], [], (1,))
    image = write_image("dumped", layout.size, [(layout.offsets[0], memoryview(filled("weights").numpy()).cast("B"))])
    file = seat_device.place(1, layout.bounds[-1])
    assert file is not None
    groups = Groups(file, image, layout.bounds, bytes(32))
    groups.load()
    seat_device.take()
    return groups


def left_out() -> dict[str, bool]:
    """Large mappings of files in memory, by the files' names: whether core dumps leave out all of each."""
    found: dict[str, bool] = {}
    for mapping in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        named = re.match(r"([0-9a-f]+)-([0-9a-f]+) .*/memfd:([a-z]+[^ ]*)", mapping)
        if named and int(named[2], 16) - int(named[1], 16) >= SIZE:
            flags = re.search(r"VmFlags:(.*)", mapping)
            found[named[3]] = found.get(named[3], True) and flags is not None and " dd" in flags[1]
    return found


kept, groups = filled("tensor"), loaded()
Path(sys.argv[1]).write_text(json.dumps(left_out()))
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
os.abort()
