"""Computes without a break until a file appears (second argument)."""

import sys
from pathlib import Path

import torch
from common import digest, finish, start

out, release = start(), Path(sys.argv[2])
matrix, state = torch.randn(256, 256), torch.empty(256, 256)
while not release.exists():
    torch.matmul(matrix, matrix, out=state)
finish(out, state=digest(state))
