"""Train ResNet-18 on random images of ImageNet's size: ``imagenet.py ITERATIONS``.  Batch 4, SGD with momentum."""

from __future__ import annotations

import json
import sys

import torch
from nets import Residual  # type: ignore[import-not-found]  # it lies beside this script
from torch import nn


def resnet18() -> nn.Module:
    stages = [Residual(64, 64), Residual(64, 64), Residual(64, 128, 2), Residual(128, 128)]
    stages += [Residual(128, 256, 2), Residual(256, 256), Residual(256, 512, 2), Residual(512, 512)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def main(iterations: int) -> None:
    torch.manual_seed(0)
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for _ in range(iterations):
        inputs, target = torch.rand(4, 3, 224, 224), torch.randint(0, 1000, (4,))
        loss = nn.functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    checksum = sum(float(weight.double().sum()) for weight in model.state_dict().values())
    print(json.dumps({"loss": loss.item(), "checksum": checksum}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
