"""Classify small pictures: arguments, a function each for an epoch of training and of testing, a step schedule.

``digits.py --model mlp|cnn``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

SHAPES = {"mlp": (512,), "cnn": (3, 32, 32)}


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        self.count, self.shape = count, shape

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(self.shape), index % 10


def train(args: argparse.Namespace, model: nn.Module, device: torch.device,
          loader: DataLoader[tuple[torch.Tensor, int]], optimizer: torch.optim.Optimizer,
          epoch: int) -> None:  # fmt: skip
    model.train()
    for batch, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0:
            done = 100.0 * batch / len(loader)
            print(f"Epoch {epoch} [{batch * len(data)}/{len(loader.dataset)} ({done:.0f}%)]\tLoss: {loss.item():.6f}")


def test(model: nn.Module, device: torch.device, loader: DataLoader[tuple[torch.Tensor, int]]) -> float:
    model.eval()
    loss, correct, count = 0.0, 0, len(loader.dataset)
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += functional.cross_entropy(output, target, reduction="sum").item()
            correct += int(output.argmax(dim=1, keepdim=True).eq(target.view_as(output[:, :1])).sum().item())
    print(f"\nAverage loss: {loss / count:.4f}, accuracy: {correct}/{count} ({100.0 * correct / count:.1f}%)\n")
    return correct / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="cnn")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    use_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    settings = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    shape = SHAPES[args.model]
    training = DataLoader(Pictures(5 * args.batch_size, shape), args.batch_size, shuffle=True, **settings)
    testing = DataLoader(Pictures(2 * args.batch_size, shape), args.batch_size, **settings)
    model = getattr(nets, args.model)().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    best = 0.0
    with tempfile.TemporaryDirectory() as directory:
        for epoch in range(1, args.epochs + 1):
            train(args, model, device, training, optimizer, epoch)
            accuracy = test(model, device, testing)
            scheduler.step()
            if accuracy >= best:
                best = accuracy
                torch.save(model.state_dict(), Path(directory) / "best.pt")
        model.load_state_dict(torch.load(Path(directory) / "best.pt"))
    print('{"accuracy": %.4f}' % best)  # noqa: UP031 - as scripts have it


if __name__ == "__main__":
    main()
