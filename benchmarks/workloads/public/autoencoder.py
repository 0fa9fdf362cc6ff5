"""Train a variational autoencoder: losses summed as numbers over an epoch, samples drawn after each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=512, metavar="N")
parser.add_argument("--epochs", type=int, default=4, metavar="N")
parser.add_argument("--no-accel", action="store_true")
args = parser.parse_args()

torch.manual_seed(1)
use_accel = not args.no_accel and torch.cuda.is_available()
device = torch.device("cuda" if use_accel else "cpu")
print(f"Using device: {device}")
settings = {"num_workers": 1, "pin_memory": True} if use_accel else {}
pictures = TensorDataset(torch.rand(5 * args.batch_size, 784))
loader = DataLoader(pictures, batch_size=args.batch_size, shuffle=True, **settings)
model = nets.VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def train(epoch: int) -> float:
    model.train()
    total = 0.0
    for index, (data,) in enumerate(loader):
        data = data.to(device)
        optimizer.zero_grad()
        loss = model(data)
        loss.backward()
        total += loss.item()
        optimizer.step()
        if index % 2 == 0:
            print(f"Train Epoch: {epoch} [{100.0 * index / len(loader):.0f}%]\tLoss: {loss.item() / len(data):.6f}")
    print(f"====> Epoch: {epoch} Average loss: {total / len(pictures):.4f}")
    return total


def sample(epoch: int) -> None:
    model.eval()
    with torch.no_grad():
        drawn = model.decoder(torch.randn(64, 32).to(device)).cpu()
        print(f"epoch {epoch}: brightness {drawn.mean():.3f}, of shape {tuple(drawn.view(64, 1, 28, 28).shape)}")


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        total = train(epoch)
        sample(epoch)
    print('{"loss": %.4f}' % total)  # noqa: UP031 - as scripts have it
