"""What the training scripts of this directory share: a small model, its data, and how results are written.

The scripts know nothing of Carpool.  Each takes the file for its results as its first argument.  ``DEVICE=cuda`` in the
environment: models and data are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import ballast
import torch
from rounds import again, leaves, wait_at
from torch import Tensor, nn

DEVICE = torch.device(os.environ.get("DEVICE", "cpu"))
ROWS, INPUTS, WIDTH, CLASSES = 512, 64, 256, 10


def start(*, meet_later: bool = False) -> Path:
    """Seed everything, wait for the others; returns the file for the results."""
    if not meet_later:
        meet()
    torch.manual_seed(0)
    ballast.load()
    return Path(sys.argv[1])


def meet(scripts: int = 1) -> None:
    """Scripts that are to run side by side begin together: $MEETING_POINT is a socket that says when."""
    point = os.environ.pop("MEETING_POINT", None)
    if point is not None:
        import torch._dynamo  # the first optimizer would, which takes a second  # noqa: F401

        wait_at(point, scripts)


def mlp(width: int = WIDTH) -> nn.Sequential:
    """About 0.4 MB of weights."""
    layers = nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    return nn.Sequential(*layers).to(DEVICE)


def batches(count: int, rows: int = ROWS) -> list[tuple[Tensor, Tensor]]:
    """Random data: learning it is not the point."""
    made = [(torch.randn(rows, INPUTS), torch.randint(0, CLASSES, (rows,))) for _ in range(count)]
    return [(inputs.to(DEVICE), classes.to(DEVICE)) for inputs, classes in made]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    again()
    return loss_beside(model, batch)


def loss_beside(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """For a loop that says `again` itself."""
    ballast.step()
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def digest(*tensors: Tensor) -> str:
    """One hash over the exact bytes of all tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().numpy())
    return total.hexdigest()


def weights(*modules: nn.Module) -> str:
    return digest(*(tensor for module in modules for tensor in module.state_dict().values()))


def finish(out: Path, **results: object) -> None:
    """Write the results; floats are written exactly."""
    leaves()
    ballast.check()
    out.write_text(json.dumps(results, indent=1, default=str) + "\n")
