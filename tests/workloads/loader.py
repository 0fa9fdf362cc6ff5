"""A data loader with worker processes, started by fork or spawn (second argument)."""

import sys

import torch
from common import CLASSES, DEVICE, INPUTS, finish, loss_of, meet, mlp, start, weights
from torch import Tensor, optim
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    """Data that the workers compute with tensors of their own, and with one made by the parent."""

    def __init__(self) -> None:
        self.table = torch.randn(8192, INPUTS)

    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return self.table[index] + 0.1 * torch.randn(INPUTS, generator=generator), index % CLASSES


if __name__ == "__main__":
    out, method = start(meet_later=True), sys.argv[2]
    model, numbers = mlp(), Numbers()
    workers = 2 if method == "fork" else 1
    loader = DataLoader(numbers, 256, shuffle=True, num_workers=workers, multiprocessing_context=method)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(2 if method == "fork" else 1):
        for batch in loader:
            if not losses:
                meet()  # the workers are there
            optimizer.zero_grad()
            loss = loss_of(model, (batch[0].to(DEVICE), batch[1].to(DEVICE)))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if method == "fork":
                numbers.table.mul_(0.999)  # the workers of this epoch do not see this
    finish(out, weights=weights(model), losses=losses)
