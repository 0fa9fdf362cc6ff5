"""Gets memory piece by piece until it has enough, and ends with an error of PyTorch's when it is refused some.

    spill.py RESULT MIB [--meet N] [--handled | --words | --plain]

``--meet``: it waits for the test when it has so much.
``--handled``: it goes on with what it has.
``--words``: it is refused nothing, says that it was, and fails of something else.
``--plain``: nothing of PyTorch or Carpool is in it, and the message is one of the driver's.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from gpu import MIB, OUT_OF_MEMORY, CudaError, Gpu
from meeting import meet

PIECE = 4
TEXT = "CUDA out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 256.00 MiB of which 0 are free."

parser = argparse.ArgumentParser()
parser.add_argument("result", type=Path)
parser.add_argument("mib", type=int)
parser.add_argument("--meet", type=int, default=-1)
for way in ("handled", "words", "plain"):
    parser.add_argument(f"--{way}", action="store_true")
given = parser.parse_args()

if not given.plain:
    import torch

    if given.words:
        print(f"torch.OutOfMemoryError: {TEXT}\nOOM BLOOM out of memory", file=sys.stderr)
        raise KeyError("of its own")

gpu = Gpu()
pieces: list[int] = []
while len(pieces) * PIECE < given.mib:
    if len(pieces) * PIECE == given.meet:
        print("under way", flush=True)
        meet()
    try:
        pieces.append(gpu.memory(PIECE * MIB) if given.plain else gpu.segment(PIECE * MIB))
    except CudaError as error:
        assert error.code == OUT_OF_MEMORY
        if given.handled:
            print(f"torch.OutOfMemoryError: {TEXT}", flush=True)
            break
        if given.plain:
            sys.exit("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
        raise torch.cuda.OutOfMemoryError(TEXT) from None
    gpu.fill(pieces[-1], PIECE * MIB, len(pieces))
digest = gpu.digest([(piece, PIECE * MIB) for piece in pieces])
given.result.write_text(json.dumps({"digest": digest, "pieces": len(pieces)}))
