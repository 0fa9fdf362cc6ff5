"""A worker of several models: it computes with the weights of each in turn, and compares with what is in the host.

Arguments: models, MiB of each, rounds, and how often each round computes.
"""

import os
import sys
from hashlib import sha256

import torch
from common import finish, start

from carpool.devices import memfd
from carpool.serve.model import seat_device
from carpool.serve.model.image_store import write_image
from carpool.serve.model.native_groups import Groups
from carpool.serve.plan.manifest import lay_out

out = start()
models, mib, rounds, repeats = map(int, sys.argv[2:])
WIDTH = 512


class Model:
    def __init__(self, number: int) -> None:
        """Square matrices, one per MiB, each a layer and a group."""
        generator = torch.Generator().manual_seed(number)
        self.expected = torch.randn(mib, WIDTH, WIDTH, generator=generator)
        size = WIDTH * WIDTH * 4
        layout = lay_out([size] * mib, [[k] for k in range(mib)], [], tuple(range(1, mib + 1)))
        data = memoryview(self.expected.numpy()).cast("B")
        parts = [(offset, data[k * size : (k + 1) * size]) for k, offset in enumerate(layout.offsets)]
        self.image = write_image(f"model{number}", layout.size, parts)
        self.layout = layout
        self.key = sha256(bytes([number])).digest()
        self.groups: Groups | None = None
        self.copies = 0

    def place(self) -> None:
        size = self.layout.bounds[-1]
        file = seat_device.place(int.from_bytes(self.key[:8], "little"), size, reload_us=1000 * mib)
        if file is None:
            return
        assert memfd.is_sealed(file, os.fstat(file).st_size)
        if self.groups is None:
            self.groups = Groups(file, self.image, self.layout.bounds, self.key)
        else:
            self.groups.move(file)
        os.close(file)

    def answer(self) -> bool:
        """Whether what it computes is what it should be, to the last bit."""
        self.place()
        assert self.groups is not None
        self.groups.load()
        seat_device.take()
        self.copies += self.groups.there < self.groups.count
        self.groups.load()
        right = True
        x = torch.ones(8, WIDTH)
        for _ in range(repeats):
            for k in range(mib):
                y, z = x @ self.weights(k), x @ self.expected[k]
                right &= torch.equal(y, z)
                x = y / WIDTH**0.5
        self.groups.stop()
        seat_device.release()
        return right

    def weights(self, k: int) -> torch.Tensor:
        assert self.groups is not None
        data = (seat_device.ctypes.c_char * (WIDTH * WIDTH * 4)).from_address(
            self.groups.address + self.layout.offsets[k]
        )
        return torch.frombuffer(data, dtype=torch.float32).view(WIDTH, WIDTH)


all_models = [Model(number) for number in range(models)]
seat_device.release()
right = sum(model.answer() for _ in range(rounds) for model in all_models)
finish(out, right=right, of=models * rounds)
