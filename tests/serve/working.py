"""Prepared models, and requests for them, for the tests of workers and of their handles."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import struct
from pathlib import Path

import torch

from carpool.serve.model import skeleton
from carpool.serve.model.module_inputs import Example
from carpool.serve.model.torch_tensors import datatype, named
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import Tensor
from carpool.serve.plan.manifest import Source
from carpool.serve.prepare.prepare import prepare
from carpool.serve.prepare.subprocess import PreparedModel
from tests.serve import hosted, zoo

SEED = 7


class Stage:
    """A pipe into which models say where they are.  ``env``: what the environment of theirs needs."""

    def __init__(self, directory: Path) -> None:
        path = directory / "says"
        os.mkfifo(path)
        self.env = {hosted.SAYS: str(path)}
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def reached(self) -> None:
        loop = asyncio.get_running_loop()
        come = loop.create_future()
        loop.add_reader(self._pipe, lambda: come.done() or come.set_result(None))
        try:
            await come
        finally:
            loop.remove_reader(self._pipe)
        assert os.read(self._pipe, 2) == b"x"

    def close(self) -> None:
        os.close(self._pipe)


def prepared(name: str, max_batch: int = 4) -> PreparedModel:
    """In this process, with a group per layer.  The image is the caller's to close."""
    examples: list[Example] = []

    def inputs(module: torch.nn.Module) -> tuple[torch.Tensor, ...]:
        examples.append(Example(module, max_batch))
        return examples[0].arguments

    made = prepare(
        Source(f"tests.serve.hosted:{name}", seed=SEED),
        inputs,
        group=zoo.per_layer,
    )
    return PreparedModel(made.entry, made.image, examples[0].describe(name, named(made.answer)))


def held(memory: int) -> int:
    """As if another process were copying weights there, until what this returns is closed."""
    copying = os.open(f"/proc/self/fd/{memory}", os.O_RDWR)
    fcntl.fcntl(copying, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    return copying


def tensor(name: str, value: torch.Tensor) -> Tensor:
    value = value.contiguous()
    data = ctypes.string_at(value.data_ptr(), value.nbytes)
    return Tensor(name, datatype(name, value.dtype), tuple(value.shape), data)


def request(model: str, **inputs: torch.Tensor) -> InferRequest:
    return InferRequest(model, tuple(tensor(name, value) for name, value in inputs.items()), ())


def asking(model: str, x: torch.Tensor, what: int = 0) -> InferRequest:
    """For one of `hosted.Linear`."""
    return request(model, x=x, what=torch.full((len(x),), what))


def alone(name: str, seed: int, *inputs: torch.Tensor) -> list[Tensor]:
    """What the model answers without Carpool."""
    module = skeleton.build(getattr(hosted, name), seed, weights=True)
    with torch.inference_mode():
        return [tensor(output, value) for output, value in named(module(*inputs)).items()]
