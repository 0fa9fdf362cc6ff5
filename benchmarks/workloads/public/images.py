"""Train an image classifier: meters, accuracies of the best k, checkpoints to resume from, a cosine schedule.

``images.py --arch resnet|vgg|mobilenet|densenet``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

BATCHES = {"resnet": 16, "vgg": 64, "mobilenet": 32, "densenet": 16}
Loader: TypeAlias = "DataLoader[tuple[torch.Tensor, ...]]"


class Meter:
    """A running average."""

    def __init__(self, name: str, how: str) -> None:
        self.name, self.how = name, how
        self.value = self.sum = self.count = 0.0

    def update(self, value: float, count: int = 1) -> None:
        self.value = value
        self.sum += value * count
        self.count += count

    def __str__(self) -> str:
        return f"{self.name} {self.value:{self.how}} ({self.sum / self.count:{self.how}})"


@torch.no_grad()
def accuracy(output: torch.Tensor, target: torch.Tensor, topk: tuple[int, ...]) -> list[torch.Tensor]:
    _, best = output.topk(max(topk), 1, True, True)
    correct = best.t().eq(target.view(1, -1).expand_as(best.t()))
    return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


def train(loader: Loader, model: nn.Module, criterion: nn.Module, optimizer: torch.optim.Optimizer, epoch: int,
          device: torch.device) -> None:  # fmt: skip
    elapsed, losses, first = Meter("Time", "6.3f"), Meter("Loss", ".4e"), Meter("Acc@1", "6.2f")
    model.train()
    end = time.time()
    for step, (images, target) in enumerate(loader):
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        (correct, _) = accuracy(output, target, (1, 5))
        losses.update(loss.item(), images.size(0))
        first.update(correct[0].item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        optimizer.step()
        elapsed.update(time.time() - end)
        end = time.time()
        print(f"Epoch: [{epoch}][{step}/{len(loader)}]", elapsed, losses, first, sep="\t")


def validate(loader: Loader, model: nn.Module, criterion: nn.Module, device: torch.device) -> float:
    model.eval()
    first = Meter("Acc@1", "6.2f")
    with torch.no_grad():
        for images, target in loader:
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            first.update(accuracy(output, target, (1, 5))[0].item(), images.size(0))
    print(f" * {first}, last loss {loss:.3f}")
    return first.sum / first.count


def data(batches: int, batch: int) -> TensorDataset:
    return TensorDataset(torch.rand(batches * batch, 3, 32, 32), torch.randint(0, 10, (batches * batch,)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-a", "--arch", choices=sorted(BATCHES), default="resnet")
    parser.add_argument("-j", "--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("-b", "--batch-size", type=int)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    batch = args.batch_size or BATCHES[args.arch]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = getattr(nets, args.arch)()
    model = model.cuda() if torch.cuda.is_available() else model.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    settings = {"batch_size": batch, "num_workers": args.workers, "pin_memory": torch.cuda.is_available()}
    training, validation = DataLoader(data(5, batch), shuffle=True, **settings), DataLoader(data(2, batch), **settings)
    best = 0.0
    with tempfile.TemporaryDirectory() as directory:
        for epoch in range(args.epochs):
            train(training, model, criterion, optimizer, epoch, device)
            correct = validate(validation, model, criterion, device)
            scheduler.step()
            best = max(correct, best)
            state = {"epoch": epoch + 1, "arch": args.arch, "state_dict": model.state_dict(), "best": best,
                     "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}  # fmt: skip
            torch.save(state, f"{directory}/checkpoint.pth.tar")
    print('{"best": %.4f}' % best)  # noqa: UP031 - as scripts have it


if __name__ == "__main__":
    main()
