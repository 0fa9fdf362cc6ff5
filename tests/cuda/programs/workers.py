"""Workers of multiprocessing that use the device, started by a process that has only imported PyTorch.

    workers.py RESULT METHOD [--preload] [--workers N] ARGUMENTS...

METHOD is multiprocessing's; the arguments are those of train.py, which every worker runs.  One more worker uses
nothing.
``--preload``: the forkserver imports PyTorch, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import runpy
import sys
from pathlib import Path

import torch

TRAIN = Path(__file__).with_name("train.py")


def train(result: str, arguments: list[str]) -> None:
    sys.argv = [str(TRAIN), result, *arguments]
    runpy.run_path(str(TRAIN), run_name="__main__")


def load_data() -> None:
    torch.ones(4).sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("method")
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    given, arguments = parser.parse_known_args()
    context = multiprocessing.get_context(given.method)
    if given.preload:
        context.set_forkserver_preload(["torch"])
    results = [f"{given.result}.{number}" for number in range(given.workers)]
    started = [context.Process(target=train, args=(result, arguments)) for result in results]
    started.append(context.Process(target=load_data))
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * len(started)
    read = [json.loads(Path(result).read_text()) for result in results]
    given.result.write_text(json.dumps({key: [one[key] for one in read] for key in ("digest", "counters")}))


if __name__ == "__main__":
    main()
