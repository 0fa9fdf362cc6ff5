"""What these scripts share: the device, waiting for the others, and how results are written.

``DEVICE=cpu`` in the environment: the same on the CPU.  There PyTorch chooses other operators where a library has
faster ones; without these libraries the operators are those of a GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[3] / "workloads"))
import rounds
from rounds import again

__all__ = ["DEVICE", "again", "digest", "finish", "meet", "state_of"]
rounds.FIRST, rounds.EVERY = 1, 2  # iterations are few, and their memory is known beforehand
DEVICE = torch.device(os.environ.get("DEVICE", "cuda"))
torch.backends.mkldnn.enabled = False
torch.backends.nnpack.set_flags(False)


def meet() -> None:
    """Scripts that are to run side by side begin together: $MEETING_POINT is a socket that says when."""
    point = os.environ.pop("MEETING_POINT", None)
    if point is not None:
        import torch._dynamo  # the first optimizer would, which takes a second

        torch.zeros(1, device=DEVICE)  # nor the start of the device
        rounds.wait_at(point, scripts=1)


def digest(tensors: Iterable[Tensor]) -> str:
    """One hash over the exact bytes of all tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


def state_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


def finish(**results: object) -> None:
    """Floats are written exactly."""
    Path(sys.argv[1]).write_text(json.dumps(results) + "\n")
