"""What a launcher such as torchrun does: train.py in one process for each device.

    ranks.py RESULT RANKS [--own] [--victim] ARGUMENTS...

The arguments are those of train.py.  ``--own``: the launcher shows each process one device, by its number, instead of
leaving the choice to it.  ``--victim``: rank 1 never ends by itself and is killed on its way; the others are ended
then, too, as torchrun does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
ENDLESS = ["--iterations", "1000000"]


def start(rank: int, out: str, arguments: list[str], own: bool, **options: object) -> subprocess.Popen[str]:
    more = {"LOCAL_RANK": str(rank), "TRAIN_DEVICE": "0" if own else str(rank)}
    more |= {"CUDA_VISIBLE_DEVICES": str(rank)} if own else {}
    command = [sys.executable, str(TRAIN), f"{out}.{rank}", *arguments]
    return subprocess.Popen(command, env=os.environ | more, text=True, **options)  # type: ignore[call-overload]


def fail_together(out: str, count: int, arguments: list[str]) -> int:
    ranks = [start(rank, out, [*arguments, *ENDLESS], False, stdout=subprocess.PIPE) for rank in range(count)]
    for process in ranks:
        assert process.stdout is not None and "under way" in process.stdout.readline()
    ranks[1].kill()
    ranks[1].wait()
    for process in ranks:
        process.kill()
        process.wait()
    return 1


def main() -> int:
    out, count, *arguments = sys.argv[1:]
    own, victim = "--own" in arguments, "--victim" in arguments
    arguments = [argument for argument in arguments if argument not in ("--own", "--victim")]
    if victim:
        return fail_together(out, int(count), arguments)
    ranks = [start(rank, out, arguments, own) for rank in range(int(count))]
    codes = [process.wait() for process in ranks]
    assert not any(codes), codes
    results = [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(int(count))]
    Path(out).write_text(json.dumps({key: [one[key] for one in results] for key in results[0]}))
    return 0


sys.exit(main())
