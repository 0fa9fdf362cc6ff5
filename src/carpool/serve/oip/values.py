"""Tensors, and models' descriptions of theirs.  Plain data with the standard library alone: workers use it, too."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """``data`` is row-major and little-endian; each element of BYTES has its length before it, in four bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the model declares it; -1 in the shape: any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """``max_batch``: most rows of the first dimension, which all inputs share; 0: it is no batch dimension."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0
    platform: str = "pytorch"

    def __post_init__(self) -> None:
        if self.max_batch and not all(spec.shape and spec.shape[0] == -1 for spec in self.inputs):
            raise ValueError(f"model {self.name!r} takes batches, so the shapes of its inputs have to begin with -1")
