"""What scripts rely on besides results: ``stock.py [DEVICE]``.  Prints it as JSON; with Carpool it must be the same.

Statistics of PyTorch's allocator, its out-of-memory exception and that computing goes on after it, cudnn.benchmark,
record_stream.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

DEVICE = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
MIB = 1 << 20


def statistics() -> dict[str, object]:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = torch.ones(64 * MIB, dtype=torch.uint8, device=DEVICE)
    torch.ones(32 * MIB, dtype=torch.uint8, device=DEVICE)
    numbers = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
    reserved, names = torch.cuda.memory_reserved(), sorted(torch.cuda.memory_stats())
    del kept
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved()
    return {"allocated": numbers, "reserved": reserved, "reserved in the end": left, "names": names}


def out_of_memory() -> str:
    """The exception's name, if computing goes on after it."""
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
    except torch.OutOfMemoryError as error:
        name = type(error).__name__
        torch.ones(MIB, device=DEVICE).sum().item()
        return name
    return "none"


def benchmarked() -> bool:
    """Whether a convolution comes out finite whose algorithm was chosen by trying."""
    torch.backends.cudnn.benchmark = True
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).to(DEVICE)
    net(torch.randn(32, 3, 64, 64, device=DEVICE)).square().mean().backward()
    return all(bool(each.grad.isfinite().all()) for each in net.parameters())


def recorded() -> bool:
    """A tensor that is freed while another stream uses it keeps its memory until that stream is done."""
    side, numbers = torch.cuda.Stream(), torch.ones(16 * MIB, dtype=torch.int32, device=DEVICE)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        total = numbers.sum()
    numbers.record_stream(side)
    del numbers
    torch.full((16 * MIB,), 7, dtype=torch.int32, device=DEVICE)
    torch.cuda.current_stream().wait_stream(side)
    return total.item() == 16 * MIB


def main() -> None:
    torch.manual_seed(1)
    seen: dict[str, object] = {"cudnn.benchmark": benchmarked()}
    if DEVICE.type == "cuda":
        seen |= {"out of memory": out_of_memory(), "statistics": statistics(), "record_stream": recorded()}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
