"""Ordinary PyTorch scripts with libcarpool preloaded compute what they compute without it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

from tools.gpu_check.registry import Needs, check, require
from tools.gpu_check.scripts import needs_cuda, run

WAYS = ("sgd", "adam", "amp", "graph", "compile", "trees", "streams", "loader")


def unattached(way: str) -> Callable[[], None]:
    def function() -> None:
        needs_cuda()
        alone, again, preloaded = (run("train.py", way, preload=preload) for preload in (False, False, True))
        require(alone == again, "the script itself is not deterministic")
        require(alone == preloaded, "another result with libcarpool preloaded")

    function.__name__ = f"preloaded_{way}"
    return function


for each in WAYS:
    check(f"libcarpool preloaded, no daemon: {each}, bit-identical", Needs.TORCH)(unattached(each))
