"""Waits for memory until Ctrl-C, and then does with less, of the other class."""

import sys
import time

import torch
from common import finish, start

import carpool

MIB = 1 << 20
out, (kept, used) = start(), map(int, sys.argv[2:4])


def wait_for(mib: int) -> str:
    try:
        try:
            torch.ones(mib * MIB, dtype=torch.uint8)
        except RuntimeError:
            time.sleep(0)  # there was no memory, because of Ctrl-C; Python comes to it now
    except KeyboardInterrupt:
        return "interrupted"
    return "had it"


how = wait_for(kept)
with carpool.iteration():
    last = int(torch.ones(used * MIB, dtype=torch.uint8)[-1])
finish(out, how=how, last=last)
