"""Trains a small model in one of several ways and prints a digest of everything it computed: ``train.py WAY [DEVICE]``.

Ways: sgd, adam, amp, graph, compile, trees (compile with graph trees), streams, loader.  BALLAST_MIB: memory on the
device that it holds besides, and looks at in the end.  An ordinary PyTorch script: nothing in it knows of Carpool.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic cuBLAS needs

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WAY = sys.argv[1]
DEVICE = torch.device(sys.argv[2] if len(sys.argv) > 2 else "cuda")
STEPS, BATCH, WIDTH = 30, 64, 256
PART = 1 << 24


def model() -> nn.Module:
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16 * 16 * 16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(DEVICE)


def batches() -> list[tuple[Tensor, Tensor]]:
    """On the host."""
    generator = torch.Generator().manual_seed(7)
    images = [torch.randn(BATCH, 3, 16, 16, generator=generator) for _ in range(STEPS)]
    return [(image, torch.randint(10, (BATCH,), generator=generator)) for image in images]


def to_device(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    images, labels = batch
    return images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)


def plain(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    losses = []
    for images, labels in map(to_device, batches()):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def amp(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    scaler = torch.amp.GradScaler(DEVICE.type)
    losses = []
    for images, labels in map(to_device, batches()):
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, dtype=torch.float16 if DEVICE.type == "cuda" else torch.bfloat16):
            loss = nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach().float())
    return losses


def graph(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The whole iteration as a CUDA graph, replayed."""
    data = [to_device(batch) for batch in batches()]
    images, labels = (part.clone() for part in data[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(captured):
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    losses = []
    for new_images, new_labels in data:
        images.copy_(new_images)
        labels.copy_(new_labels)
        captured.replay()
        losses.append(loss.detach().clone())
    return losses


def streams(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Batches are copied in a stream of their own, one iteration ahead."""
    side, data = torch.cuda.Stream(), [tuple(part.pin_memory() for part in batch) for batch in batches()]
    losses = []
    for batch in data:
        with torch.cuda.stream(side):
            images, labels = to_device(batch)
        torch.cuda.current_stream().wait_stream(side)
        for part in (images, labels):
            part.record_stream(torch.cuda.current_stream())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def loader(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Two workers and pinned memory."""
    images, labels = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    pinned = DEVICE.type == "cuda"
    dataset = TensorDataset(images, labels)
    losses = []
    for batch in DataLoader(dataset, batch_size=BATCH, num_workers=2, pin_memory=pinned):
        optimizer.zero_grad()
        moved_images, moved_labels = to_device(tuple(batch))
        loss = nn.functional.cross_entropy(net(moved_images), moved_labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def content(tensor: Tensor) -> bytes:
    """Without numpy, which PyTorch does not bring along."""
    there = tensor.detach().cpu().contiguous()
    return ctypes.string_at(there.data_ptr(), there.nbytes)


def main() -> None:
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    ballast = torch.arange(int(os.environ.get("BALLAST_MIB", "0")) << 18, dtype=torch.int32, device=DEVICE)
    net = model()
    if WAY == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    ways = {"amp": amp, "graph": graph, "streams": streams, "loader": loader}
    modes = {"compile": "default", "trees": "reduce-overhead"}
    losses = ways.get(WAY, plain)(torch.compile(net, mode=modes[WAY]) if WAY in modes else net, optimizer)
    digest = hashlib.sha256()
    for tensor in [*losses, *net.state_dict().values()]:
        digest.update(content(tensor))
    for begin, part in enumerate(ballast.split(PART)):
        if not torch.equal(part, torch.arange(begin * PART, begin * PART + len(part), device=DEVICE)):
            sys.exit("the ballast has changed")
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
