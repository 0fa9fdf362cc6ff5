"""Training loops as libraries write them: ``loops.py RESULT KIND EPOCHS``.

``trainer``: accumulated gradients, clipped, a schedule, evaluation, a checkpoint that is read again.  ``closures``: two
optimizers that are given closures, an average of the weights.  Both: workers, and batches by way of pinned memory.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import torch
from common import DEVICE, again, digest, finish, meet, state_of
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

ROWS, WIDTH, CLASSES = 192, 48, 7
PLAIN = {"foreach": False, "fused": False}  # as the CPU would choose


class Rows(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(number)), number % CLASSES


def batches() -> DataLoader[tuple[Tensor, int]]:
    order = torch.Generator().manual_seed(1)
    pinned = DEVICE.type == "cuda"
    return DataLoader(Rows(), 16, shuffle=True, generator=order, num_workers=2, pin_memory=pinned, drop_last=True)


def on_device(batch: list[Tensor]) -> list[Tensor]:
    return [tensor.to(DEVICE, non_blocking=True) for tensor in batch]


def network(width: int = 96) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, CLASSES))


class Trainer:
    """Every second batch is a step."""

    EVERY = 2

    def __init__(self) -> None:
        self.model = network().to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, **PLAIN)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 5))
        self.losses: list[float] = []

    def epoch(self) -> None:
        self.model.train()
        for number, batch in enumerate(batches(), 1):
            again()
            inputs, target = on_device(batch)
            (functional.cross_entropy(self.model(inputs), target) / self.EVERY).backward()
            if number % self.EVERY == 0:
                self.step()
        self.evaluate()
        self.read_again(self.checkpoint())

    def step(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5, foreach=False)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self) -> None:
        self.model.eval()
        found = [functional.cross_entropy(self.model(inputs), target) for inputs, target in map(on_device, batches())]
        self.losses.append(torch.stack(found).mean().item())

    def checkpoint(self) -> io.BytesIO:
        file = io.BytesIO()
        parts = (self.model, self.optimizer, self.schedule)
        torch.save([part.state_dict() for part in parts], file)
        return file

    def read_again(self, file: io.BytesIO) -> None:
        file.seek(0)
        stored = torch.load(file, map_location=DEVICE, weights_only=False)
        for part, state in zip((self.model, self.optimizer, self.schedule), stored, strict=True):
            part.load_state_dict(state)


class Closures:
    """An encoder and its critic; an average of the encoder lives on beside it."""

    def __init__(self) -> None:
        self.model, self.critic = network(64).to(DEVICE), nn.Linear(CLASSES, 1).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3, **PLAIN)
        self.other = torch.optim.SGD(self.critic.parameters(), lr=1e-2, momentum=0.9, **PLAIN)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.losses: list[float] = []

    def epoch(self) -> None:
        for batch in batches():
            again()
            inputs, target = on_device(batch)
            self.step(self.other, lambda inputs=inputs: self.critic(self.model(inputs).detach()).square().mean())
            loss = self.step(self.optimizer, lambda inputs=inputs, target=target: self.loss(inputs, target))
            self.average.update_parameters(self.model)
        self.losses.append(loss.item())

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        found = self.model(inputs)
        return functional.cross_entropy(found, target) - 0.1 * self.critic(found).mean()

    def step(self, optimizer: torch.optim.Optimizer, compute: Callable[[], Tensor]) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = compute()
            loss.backward()
            return loss

        return optimizer.step(closure)  # type: ignore[no-any-return, arg-type]


KINDS: dict[str, type[Trainer | Closures]] = {"trainer": Trainer, "closures": Closures}


def main(kind: str, epochs: int) -> None:
    torch.manual_seed(0)
    loop = KINDS[kind]()
    for _ in range(epochs):
        loop.epoch()
    average = loop.average.state_dict().values() if isinstance(loop, Closures) else ()
    weights = [*loop.model.state_dict().values(), *average]
    finish(weights=digest(weights), state=digest(state_of(loop.optimizer)), losses=loop.losses)


if __name__ == "__main__":
    meet()
    main(sys.argv[2], int(sys.argv[3]))
