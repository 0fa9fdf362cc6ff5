"""A back end for tests and benchmarks: it computes with NumPy in the endpoint's own process, and queues as services do.

`hold` keeps its only worker busy, so that a test decides what waits when.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carpool.serve.client import DTYPES
from carpool.serve.oip import errors
from carpool.serve.oip.datatypes import DATATYPES, unpack_strings
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import ModelMetadata, Tensor, TensorSpec
from carpool.serve.queue.batching import Batch, Batcher, Queue, Refusal, WaitingRequest

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
    def __init__(self, *, most_waiting: int = 64, max_delay_us: int = 0, compute_us: int = 0) -> None:
        self.batcher = Batcher()
        for name, model in MODELS.items():
            self.batcher.add_model(name, Queue(most_waiting, max(1, model.max_batch), max_delay_us, compute_us))
        self.batches: deque[Batch] = deque(maxlen=1000)  # the latest
        self.lacking: list[str] = []
        self._held = False
        self._requests: dict[int, tuple[InferRequest, asyncio.Future[Sequence[Tensor]]]] = {}
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._changed = threading.Condition()

    # For tests, from any thread

    def wait_until_waiting(self, requests: int) -> None:
        """So many, no more and no less, wait in all queues together."""
        with self._changed:
            reached = self._changed.wait_for(lambda: len(self._requests) == requests, PATIENCE_S)
        assert reached, f"{len(self._requests)} requests wait instead of {requests}"

    # In the endpoint's loop

    async def hold(self, held: bool) -> None:
        self._held = held
        self._pump()

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
        return self.batcher.waiting()

    async def infer(self, request: InferRequest) -> Sequence[Tensor]:
        now, number = now_us(), next(self._numbers)
        deadline = None if request.timeout_us is None else now + request.timeout_us
        form = tuple(tensor.shape[1:] for tensor in request.inputs)
        waiting = WaitingRequest(number, request.model, request.rows, form, deadline, request.priority)
        match self.batcher.add(waiting, now):
            case Refusal.QUEUE_FULL:
                raise errors.QueueFull(f"too many requests wait for {request.model!r}", retry_after_s=3)
            case Refusal.DEADLINE_MISSED:
                raise errors.DeadlineMissed("the answer would be too late")
        future: asyncio.Future[Sequence[Tensor]] = asyncio.get_running_loop().create_future()
        self._note(lambda: self._requests.update({number: (request, future)}))
        try:
            self._pump()
            return await future
        finally:
            self.batcher.withdraw(number)
            self._note(lambda: self._requests.pop(number))

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _pump(self) -> None:
        now = now_us()
        for request in self.batcher.expire(now):
            self._requests[request.id][1].set_exception(errors.DeadlineMissed("the deadline has passed"))
        while not self._held and (batch := self.batcher.take(now)):
            self._compute(batch)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [self.batcher.next_late(), None if self._held else self.batcher.next_due()]
        if known := [time for time in times if time is not None]:
            delay_s = max(0, min(known) - now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump)

    def _compute(self, batch: Batch) -> None:
        self.batches.append(batch)
        entries = [self._requests[request.id] for request in batch.requests]
        try:
            results = answers(batch.model, [request for request, _ in entries])
        except errors.ServeError as error:
            for _, future in entries:
                future.set_exception(error)
            return
        for (_, future), outputs in zip(entries, results, strict=True):
            future.set_result(outputs)


def now_us() -> int:
    return time.monotonic_ns() // 1000


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
