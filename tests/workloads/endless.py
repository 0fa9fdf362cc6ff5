"""One iteration that does not end: computes without any boundary until a file appears (or a ``count N`` is reached)."""

import sys
from pathlib import Path

import ballast
import torch
from common import digest, finish, start

out, (manner, value) = start(), sys.argv[2:4]
matrix, state, other = torch.randn(256, 256) / 16, torch.eye(256), torch.empty(256, 256)
done = 0
while done < int(value) if manner == "count" else not Path(value).exists():
    torch.matmul(state, matrix, out=other)
    torch.tanh(other, out=other)
    state.lerp_(other, 0.5)
    ballast.step()
    done += 1
finish(out, count=done, state=digest(state))
