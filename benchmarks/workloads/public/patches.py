"""Train a vision transformer: warm-up by OneCycle, smoothed labels, an average of the weights, a check of each loss."""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]


@dataclass
class Config:
    batch_size: int = 16
    epochs: int = 4
    max_lr: float = 3e-3
    decay: float = 0.99
    device: str = "cuda" if torch.cuda.is_available() else "cpu"


class Average:
    """The weights' running average."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.model = decay, copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mean, now in zip(self.model.state_dict().values(), model.state_dict().values(), strict=True):
            mean.copy_(mean * self.decay + (1.0 - self.decay) * now)


class Trainer:
    def __init__(self, config: Config) -> None:
        self.config, self.device = config, torch.device(config.device)
        self.model = nets.ViT().to(self.device)
        self.average = Average(self.model, config.decay)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.max_lr, weight_decay=0.05)
        data = TensorDataset(torch.randn(5 * config.batch_size, 3, 32, 32), torch.randint(10, (5 * config.batch_size,)))
        self.loader = DataLoader(data, config.batch_size, shuffle=True, drop_last=True)
        steps = config.epochs * len(self.loader)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, config.max_lr, total_steps=steps)
        self.history: dict[str, list[float]] = {"loss": [], "accuracy": []}

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        images, labels = images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        logits = self.model(images)
        loss = self.criterion(logits, labels)
        if not math.isfinite(loss.item()) or not torch.isfinite(loss):
            print(f"Loss is {loss}, stopping training")
            sys.exit(1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.average.update(self.model)
        return loss.item(), (logits.argmax(1) == labels).float().mean().item()

    def run(self) -> float:
        for epoch in range(self.config.epochs):
            begin = time.perf_counter()
            results = [self.step(*batch) for batch in self.loader]
            loss, accuracy = (sum(column) / len(results) for column in zip(*results, strict=True))
            self.history["loss"].append(loss)
            self.history["accuracy"].append(accuracy)
            print(f"{epoch:3d} | {loss:8.4f} | {accuracy:6.2%} | {time.perf_counter() - begin:.1f} s")
        return self.history["loss"][-1]


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({"loss": Trainer(Config()).run()}))
