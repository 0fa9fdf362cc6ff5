"""A back end for tests and benchmarks, which computes with NumPy in the endpoint's own process.

`hold` lets requests wait, so that a test decides what waits when.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carpool.serve.client import DTYPES
from carpool.serve.oip import errors
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import DATATYPES, ModelMetadata, Tensor, TensorSpec, unpack_strings

Array = NDArray[Any]
PATIENCE_S = 240.0


def spec(name: str, datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


MODELS = {
    model.name: model
    for model in (
        ModelMetadata("affine", (spec("x", "FP32", -1, 3),), (spec("y", "FP32", -1, 3),), max_batch=8),
        ModelMetadata(
            "pair",
            (spec("a", "FP64", -1, 2), spec("b", "FP64", -1, 2)),
            (spec("sum", "FP64", -1, 2), spec("difference", "FP64", -1, 2)),
        ),
        ModelMetadata("fails", (spec("kind", "BYTES", 1),), (spec("y", "FP32", 1),)),
        *(ModelMetadata(f"echo-{name}", (spec("x", name, -1, -1),), (spec("x", name, -1, -1),)) for name in DATATYPES),
    )
}
#: What `fails` raises when it is asked for it.
FAILURES = {kind.kind: kind for kind in errors.ServeError.__subclasses__() if kind is not errors.QueueFull}


class NumpyBackend:
    """Each request is computed by itself, at once unless the back end is held; ``answered``: how many were."""

    def __init__(self, *, most_waiting: int = 64) -> None:
        self.answered = 0
        self.lacking: list[str] = []
        self._most_waiting = most_waiting
        self._open = asyncio.Event()
        self._open.set()
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()

    # For tests, from any thread

    def wait_until_waiting(self, requests: int) -> None:
        """So many, no more and no less, wait for all models together."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self._waiting.total() == requests, PATIENCE_S)
        assert reached, f"{self._waiting.total()} requests wait instead of {requests}"

    # In the endpoint's loop

    async def hold(self, held: bool) -> None:
        if held:
            self._open.clear()
        else:
            self._open.set()

    def models(self) -> Mapping[str, ModelMetadata]:
        return MODELS

    def unavailable(self) -> Mapping[str, str]:
        return {"broken": "its factory raised an error"}

    def troubles(self) -> Sequence[str]:
        return ()

    def degraded(self) -> Sequence[str]:
        return self.lacking

    def workers(self) -> Mapping[str, int]:
        return {"idle": 1}

    def waiting(self) -> Mapping[str, int]:
        return self._waiting

    async def infer(self, request: InferRequest) -> Sequence[Tensor]:
        if self._waiting.total() >= self._most_waiting:
            raise errors.QueueFull(f"too many requests wait for {request.model!r}", retry_after_s=3)
        self._count(request.model, 1)
        try:
            async with asyncio.timeout(None if request.timeout_us is None else request.timeout_us / 1e6):
                await self._open.wait()
        except TimeoutError:
            raise errors.DeadlineMissed("the deadline has passed") from None
        finally:
            self._count(request.model, -1)
        self.answered += 1
        return answers(request.model, [request])[0]

    def _count(self, model: str, more: int) -> None:
        with self._changed:
            self._waiting[model] += more
            self._changed.notify_all()


def answers(model: str, requests: list[InferRequest]) -> list[list[Tensor]]:
    """The outputs for each of a batch of requests, computed all at once."""
    if model.startswith("echo-"):
        return [list(request.inputs) for request in requests]
    if model == "fails":
        kind = unpack_strings(requests[0].inputs[0].data)[0].decode()
        raise FAILURES[kind](f"failed as told: {kind}")
    inputs = [np.concatenate(each) for each in zip(*(map(array, request.inputs) for request in requests), strict=True)]
    outputs = (
        {"y": 2 * inputs[0] + 1} if model == "affine" else {"sum": sum(inputs), "difference": inputs[0] - inputs[1]}
    )
    ends = np.cumsum([request.inputs[0].shape[0] for request in requests])[:-1]
    parts = {name: np.split(values, ends) for name, values in outputs.items()}
    return [[tensor(name, part[place]) for name, part in parts.items()] for place in range(len(requests))]


def array(given: Tensor) -> Array:
    return np.frombuffer(given.data, DTYPES[given.datatype]).reshape(given.shape)


def tensor(name: str, values: Array) -> Tensor:
    return Tensor(name, {"<f4": "FP32", "<f8": "FP64"}[values.dtype.str], values.shape, values.tobytes())
