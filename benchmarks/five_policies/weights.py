"""Whether two runs of a job ended with the same weights, bit for bit."""

from __future__ import annotations

from pathlib import Path


def differences(left: Path, right: Path) -> list[str]:
    """Names of tensors that differ in a single bit, in shape, in type, or that only one side has."""
    import torch  # here, because the driver itself does not need two seconds of import

    first = torch.load(left, map_location="cpu", weights_only=True)
    second = torch.load(right, map_location="cpu", weights_only=True)
    return sorted(
        name
        for name in first.keys() | second.keys()
        if name not in first or name not in second or not _same(first[name], second[name])
    )


def _same(left: object, right: object) -> bool:
    """NaN equals NaN and 0.0 differs from -0.0: it is the bits that count."""
    import torch

    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return left == right
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.contiguous().view(-1).view(torch.uint8).numpy().tobytes() == (
        right.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    )
