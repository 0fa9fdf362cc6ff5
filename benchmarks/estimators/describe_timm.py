"""``python -m benchmarks.estimators.describe_timm``: what the models of timm consist of, as `timm_models.csv`.

It needs timm, which nothing else here does: ``pip install timm==1.0.31 torchvision`` into an environment of its own.
The models are built on the meta device, so no weights are loaded.
"""

from __future__ import annotations

import csv
import importlib
import math
import sys
from collections import Counter
from typing import Any

import torch

from benchmarks.estimators.data import MODELS
from carpool.estimate.learned.trees import KINDS, count_of

COLUMNS = ("model", "parameter_bytes", "buffer_bytes", "example_bytes", "layers")


def main() -> int:
    timm = importlib.import_module("timm")
    with MODELS.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for name in sorted(timm.list_models()):
            with torch.device("meta"):
                table.writerow(described(name, timm.create_model(name, pretrained=False)))
    return 0


def described(name: str, model: Any) -> list[str | int]:
    leaves = Counter(type(each).__name__ for each in model.modules() if not list(each.children()))
    counts = {kind: count_of(leaves, kind) for kind in KINDS}
    counts["other"] = sum(leaves.values()) - sum(counts.values())
    shape = (getattr(model, "default_cfg", None) or {}).get("input_size", (3, 224, 224))
    return [
        name,
        sum(each.numel() * each.element_size() for each in model.parameters()),
        sum(each.numel() * each.element_size() for each in model.buffers()),
        math.prod(shape) * torch.float32.itemsize,
        ";".join(f"{kind}={count}" for kind, count in counts.items()),
    ]


if __name__ == "__main__":
    sys.exit(main())
