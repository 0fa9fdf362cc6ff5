"""Inception-v3 (Szegedy et al. 2015, table 1) without the auxiliary classifier: 23.8 M parameters.

Images of 299 x 299; others of 75 x 75 and more work, too.  Every convolution is followed by a batch norm, and pooling
has a branch of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Sides of a convolution's window.
Window = int | tuple[int, int]


class Convolution(nn.Sequential):
    """``same``: it keeps the image's size."""

    def __init__(self, wide: int, out: int, window: Window = 1, *, stride: int = 1, same: bool = True) -> None:
        sides = (window, window) if isinstance(window, int) else window
        padding = tuple(side // 2 for side in sides) if same else 0
        super().__init__(
            nn.Conv2d(wide, out, sides, stride, padding, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
        )


class Branches(nn.ModuleList):
    """All of them get the same image; what they give is joined."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], 1)


def chain(wide: int, *steps: tuple[int, Window]) -> nn.Sequential:
    """Convolutions one after another, by channels and window."""
    layers = []
    for out, window in steps:
        layers.append(Convolution(wide, out, window))
        wide = out
    return nn.Sequential(*layers)


def pooled(wide: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), Convolution(wide, out))


def halved(*branches: tuple[nn.Sequential, int, int]) -> Branches:
    """Each branch is followed by a convolution that halves the image; one more is pooling."""
    ends = [nn.Sequential(begin, Convolution(wide, out, 3, stride=2, same=False)) for begin, wide, out in branches]
    return Branches([*ends, nn.MaxPool2d(3, 2)])


def mixed35(wide: int, out: int) -> Branches:
    five, three = chain(wide, (48, 1), (64, 5)), chain(wide, (64, 1), (96, 3), (96, 3))
    return Branches([Convolution(wide, 64), five, three, pooled(wide, out)])


def mixed17(inner: int) -> Branches:
    wide, across, down = 768, (1, 7), (7, 1)
    once = chain(wide, (inner, 1), (inner, across), (192, down))
    twice = chain(wide, (inner, 1), (inner, down), (inner, across), (inner, down), (192, across))
    return Branches([Convolution(wide, 192), once, twice, pooled(wide, 192)])


def mixed8(wide: int) -> Branches:
    def spread() -> Branches:
        return Branches([Convolution(384, 384, (1, 3)), Convolution(384, 384, (3, 1))])

    once = nn.Sequential(Convolution(wide, 384), spread())
    twice = nn.Sequential(chain(wide, (448, 1), (384, 3)), spread())
    return Branches([Convolution(wide, 320), once, twice, pooled(wide, 192)])


def network(classes: int = 1000) -> nn.Sequential:
    return nn.Sequential(
        *(Convolution(3, 32, 3, stride=2, same=False), Convolution(32, 32, 3, same=False), Convolution(32, 64, 3)),
        *(nn.MaxPool2d(3, 2), Convolution(64, 80), Convolution(80, 192, 3, same=False), nn.MaxPool2d(3, 2)),
        *(mixed35(192, 32), mixed35(256, 64), mixed35(288, 64)),
        halved((nn.Sequential(), 288, 384), (chain(288, (64, 1), (96, 3)), 96, 96)),
        *(mixed17(inner) for inner in (128, 160, 160, 192)),
        halved((chain(768, (192, 1)), 192, 320), (chain(768, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 192)),
        *(mixed8(1280), mixed8(2048)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)),
    )  # fmt: skip
