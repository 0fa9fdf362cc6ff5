"""Small real data sets that come with packages everybody has: no download, the same bytes every time."""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import pydoc_data
from pathlib import Path

import numpy as np
import torch


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """scikit-learn's handwritten digits: images (1797, 1, 8, 8) in 0..1 and labels (1797,).

    Read from the package's data file, because importing all of scikit-learn takes longer than some of these jobs.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("error: the digits come with scikit-learn. Install it: pip install scikit-learn")
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = torch.tensor(table[:, :-1]).view(-1, 1, 8, 8) / 16.0
    return images, torch.tensor(table[:, -1]).long()


def text() -> str:
    """Some 460,000 characters of English: the help topics of the Python distribution."""
    return Path(pydoc_data.__file__).with_name("topics.py").read_text(encoding="utf-8")


def batches(count: int, size: int, iterations: int) -> list[torch.Tensor]:
    """Row numbers of every iteration's batch, shuffled anew in each epoch; follows torch's seed."""
    rows: list[torch.Tensor] = []
    while len(rows) < iterations:
        rows.extend(torch.randperm(count)[: count - count % size].view(-1, size))
    return rows[:iterations]


def arguments(description: str | None, iterations: int) -> argparse.Namespace:
    """The command line that all examples share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--iterations", type=int, default=iterations, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, help="write the final weights here (torch.save of the state_dict)")
    return parser.parse_args()


def save(model: torch.nn.Module, path: Path | None) -> None:
    if path is not None:
        torch.save(model.state_dict(), path)
