"""Random numbers of an emulated device: a function of the CUDA generator's seed and offset, and of nothing else.

PyTorch's CUDA generators count, on the host, how many numbers their kernels have drawn (*offset*), so `manual_seed`,
`get_rng_state` and `set_rng_state` govern what is drawn here.  The CPU's own generators are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SEEDS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where in a generator's numbers an operator draws; ``place`` tells the operators of one graph apart."""

    seed: int
    offset: int
    place: int = 0

    @classmethod
    def next_of(cls, generator: torch.Generator) -> Drawing:
        """What the generator draws next."""
        return cls(generator.initial_seed(), generator.get_offset())

    def in_graph(self, place: int) -> Drawing:
        return Drawing(self.seed, self.offset, place + 1)

    def cpu_generator(self) -> torch.Generator:
        mixed = 0
        for number, odd in zip((self.seed, self.offset, self.place), _ODD, strict=True):
            mixed = ((mixed ^ number) * odd) ^ (mixed >> 29)
        return torch.Generator().manual_seed(mixed & _SEEDS)


def default_generator(device: int) -> torch.Generator:
    """The one from which operators draw that name none."""
    generators: tuple[torch.Generator, ...] = torch.cuda.default_generators
    return generators[device]
