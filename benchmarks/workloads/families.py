"""Train a model of one family: ``families.py NAME ITERATIONS``.  Each loop in the manner of its family."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import nets  # type: ignore[import-not-found]  # it lies beside this script
import torch
from torch import nn


@dataclass(frozen=True)
class Family:
    model: Callable[[], nn.Module]
    batch: int
    shape: tuple[int, ...]  # of one example
    classes: int  # of the target; 0: the model gives its loss
    target: tuple[int, ...] = ()  # shape of one target
    optimizer: str = "adam"
    zero: str = "before"  # "before" the forward pass, before the "backward" pass, or "after" the step


FAMILIES = {
    "mlp": Family(nets.mlp, 256, (512,), 100, zero="backward"),
    "cnn": Family(nets.cnn, 64, (3, 32, 32), 10, optimizer="sgd"),
    "resnet": Family(nets.resnet, 16, (3, 32, 32), 10, optimizer="sgd"),
    "vgg": Family(nets.vgg, 64, (3, 32, 32), 10, optimizer="sgd", zero="backward"),
    "mobilenet": Family(nets.mobilenet, 32, (3, 32, 32), 10, optimizer="rmsprop"),
    "densenet": Family(nets.densenet, 16, (3, 32, 32), 10, optimizer="sgd", zero="after"),
    "vae": Family(nets.VAE, 512, (784,), 0, zero="after"),
    "gpt": Family(nets.GPT, 8, (128,), 1000, (128,), optimizer="adamw"),
    "bert": Family(nets.BERT, 16, (64,), 2000, (64,), optimizer="adamw"),
    "vit": Family(nets.ViT, 16, (3, 32, 32), 10, optimizer="adamw"),
    "unet": Family(nets.UNet, 4, (3, 64, 64), 4, (64, 64)),
    "lstm": Family(nets.LSTM, 16, (64,), 2000, (64,), optimizer="sgd"),
}


def optimizer_for(name: str, model: nn.Module) -> torch.optim.Optimizer:
    weights = model.parameters()
    match name:
        case "sgd":
            return torch.optim.SGD(weights, lr=0.01, momentum=0.9)
        case "rmsprop":
            return torch.optim.RMSprop(weights, lr=1e-4)
        case "adamw":
            return torch.optim.AdamW(weights, lr=1e-3)
    return torch.optim.Adam(weights, lr=1e-3)


def batch_of(family: Family) -> tuple[torch.Tensor, torch.Tensor]:
    whole = len(family.shape) == 1 and bool(family.target)  # tokens
    words = (family.batch, *family.shape)
    inputs = torch.randint(0, family.classes, words) if whole else torch.rand(words)
    return inputs, torch.randint(0, max(1, family.classes), (family.batch, *family.target))


def loss_of(family: Family, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if not family.classes:
        return output
    if family.target and output.shape[1] != family.classes:
        output, target = output.flatten(0, 1), target.flatten()
    return nn.functional.cross_entropy(output, target)


def main(name: str, iterations: int) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.model()
    optimizer = optimizer_for(family.optimizer, model)
    for _ in range(iterations):
        inputs, target = batch_of(family)
        if family.zero == "before":
            optimizer.zero_grad()
        loss = loss_of(family, model(inputs), target)
        if family.zero == "backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if family.zero == "after":
            optimizer.zero_grad()
    print(json.dumps({"loss": loss.item()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
