"""A server of a language model, as far as its memory goes: it takes nine tenths of the GPU and keeps states there."""

from __future__ import annotations

import sys
import time

import torch

SHARE = 0.9
BLOCK = 1 << 20  # bytes of one request's states


def cache() -> torch.Tensor:
    """Raises SystemExit: others have what the engine needs."""
    free, total = torch.cuda.mem_get_info()
    if free < SHARE * total:
        sys.exit(f"{free >> 20} of {total >> 20} MiB are free, which is too little to start with")
    return torch.zeros(int(SHARE * total) // BLOCK, BLOCK // 4, device="cuda")


def main(seconds: float) -> None:
    """Requests come and are answered, each in a place of its own; what the last one left there must still be there."""
    states = cache()
    left, answered = [0.0] * len(states), 0
    print(f"{len(states)} MiB for states", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        place = answered % len(states)
        if states[place, 0].item() != left[place]:
            sys.exit(f"the states of request {answered - len(states)} are lost")
        answered += 1
        left[place] = float(answered)
        states[place].fill_(left[place])
    print(f"{answered} requests", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
