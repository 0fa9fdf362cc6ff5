"""``python -m tests.estimate.record``: write down what the shipped weights say, after training."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from carpool.core.model import MIB
from carpool.estimate.base import Features, Subject
from carpool.estimate.learned import Learned
from tests.estimate.test_learned import PEAKS_ONLY, RESNET50

FILE = Path(__file__).parent / "data" / "recorded.json"
TRANSFORMER = Features(
    batch_size=8,
    parameter_bytes=1_222 * MIB,
    buffer_bytes=0,
    gradient_bytes=1_222 * MIB,
    optimizer_bytes=2_444 * MIB,
    activation_bytes=5_000 * MIB,
    input_bytes=8 * 3 * 224 * 224 * 4,
    peak_forward_bytes=5_000 * MIB,
    peak_backward_bytes=5_050 * MIB,
    layers={"Conv2d": 1, "LayerNorm": 49, "Linear": 97, "GELU": 24, "Identity": 120},
)
CASES = {
    "resnet50": RESNET50,
    "resnet50, no layers": replace(RESNET50, layers={}),
    "resnet50, peaks only": PEAKS_ONLY,
    "transformer": TRANSFORMER,
    "beyond what was measured": replace(PEAKS_ONLY, batch_size=512, peak_backward_bytes=200_000 * MIB),
}


def main() -> None:
    FILE.write_text(json.dumps([_case(name, features) for name, features in CASES.items()], indent=1) + "\n")


def _case(name: str, features: Features) -> dict[str, object]:
    found = Learned().estimate(Subject(features=features, device="cuda"))
    figures = [found.persistent, found.ephemeral, found.low, found.high]
    return {"name": name, "features": asdict(features), "bytes": figures}


if __name__ == "__main__":
    main()
