"""Run `carpool`, and die by SIGKILL at a step: ``python killed.py STEP CDI_DIRECTORY ARGUMENTS...``.

Steps are the moments before and after each request to the API server and each change of a file in the directory.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from carpool.cli.main import main
from carpool.kubernetes.dra.api_server import KubernetesApi

STEP, DIRECTORY = int(sys.argv[1]), sys.argv[2]
COUNT = itertools.count(1)


def step() -> None:
    if next(COUNT) == STEP:
        os.kill(os.getpid(), signal.SIGKILL)


def with_steps(function: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if not counts(*arguments):
            return function(*arguments, **options)
        step()
        try:
            return function(*arguments, **options)
        finally:
            step()

    return call


for name in ("open", "replace", "unlink"):
    changed = with_steps(getattr(os, name), lambda path, *_: str(path).startswith(DIRECTORY))
    setattr(os, name, changed)
KubernetesApi._ask = with_steps(KubernetesApi._ask, lambda *_: True)  # type: ignore[method-assign]
sys.argv = ["carpool", *sys.argv[3:]]
main()
