"""The jobs of the demo, in the order in which they are submitted: the long ones come first, as bad luck has it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One example script, with as many iterations as make it last for some seconds on one core."""

    name: str
    iterations: int

    def argv(self, weights: Path, scale: float) -> list[str]:
        script = str(ROOT / "docs" / "examples" / f"{self.name}.py")
        return [sys.executable, script, "--iterations", str(self.steps(scale)), "--save", str(weights)]

    def steps(self, scale: float) -> int:
        return max(2, round(self.iterations * scale))


JOBS = (DemoJob("gpt", 14), DemoJob("resnet", 10), DemoJob("cnn", 24), DemoJob("vae", 20), DemoJob("mlp", 36))


def environment() -> dict[str, str]:
    """The same for the runs alone and under Carpool: one thread each, because two spinning jobs fight for cores."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CARPOOL_")}
    return {**inherited, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def with_the_demo() -> dict[str, str]:
    """For programs that import the demo, too."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment() | {"PYTHONPATH": os.pathsep.join(path)}
