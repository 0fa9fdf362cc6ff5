"""ResNet-50 (He et al. 2015, table 1; the stride is in the 3x3 convolution): 25.6 M parameters, images of 224 x 224."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .training import Training, sgd

#: Blocks and inner width of each stage; a block gives four times its inner width.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
GROWTH, CLASSES, SIDE = 4, 1000, 224


def convolution(wide: int, out: int, side: int, stride: int = 1) -> nn.Sequential:
    """With its batch norm, and padding that keeps the image's size."""
    return nn.Sequential(nn.Conv2d(wide, out, side, stride, side // 2, bias=False), nn.BatchNorm2d(out))


class Bottleneck(nn.Module):
    def __init__(self, wide: int, inner: int, stride: int) -> None:
        super().__init__()
        out = GROWTH * inner
        self.body = nn.Sequential(
            *(convolution(wide, inner, 1), nn.ReLU(inplace=True)),
            *(convolution(inner, inner, 3, stride), nn.ReLU(inplace=True)),
            convolution(inner, out, 1),
        )
        self.shortcut = nn.Identity() if (wide, stride) == (out, 1) else convolution(wide, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def network(stages: Sequence[tuple[int, int]] = STAGES) -> nn.Sequential:
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for stage, (blocks, inner) in enumerate(stages):
        for block in range(blocks):
            layers.append(Bottleneck(wide, inner, 2 if stage and not block else 1))
            wide = GROWTH * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, CLASSES))


def resnet50(device: torch.device, batch: int) -> Training:
    net = network().to(device)
    images = torch.randn(batch, 3, SIDE, SIDE, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    return Training(net, lambda: nn.functional.cross_entropy(net(images), labels), sgd(net))
