"""A model as an ordinary job: it answers by turns, and writes how long each answer took, in seconds."""

from __future__ import annotations

import time

import torch

from tools.demo.programs.model import example, network
from tools.demo.programs.questions import PAUSE_S, QUESTIONS


def main() -> None:
    model, x = network(), example()
    with torch.inference_mode():
        model(x)
        for _ in range(QUESTIONS):
            time.sleep(PAUSE_S)
            begin = time.monotonic()
            model(x)
            print(time.monotonic() - begin, flush=True)


if __name__ == "__main__":
    main()
