"""The checks and the measurements by name.

Each is a function that returns figures or nothing, and raises when something is wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Figures = dict[str, float]
Function = Callable[[], Figures | None]


class Needs(StrEnum):
    DRIVER = "driver"  # runs on the stub driver as well
    TORCH = "torch"  # PyTorch with CUDA: a real GPU


class Skip(Exception):
    """Cannot be checked here; the text says why."""


class NotSeen(Exception):
    """It went well, but what it is to show does not show here (on an emulated GPU); the text says why."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    title: str
    needs: Needs
    function: Function
    measures: bool  # for `make gpu-bench`


CHECKS: dict[str, Check] = {}


def measure(title: str, needs: Needs = Needs.DRIVER) -> Callable[[Function], Function]:
    """Register a measurement under its function's name."""
    return check(title, needs, measures=True)


def check(title: str, needs: Needs = Needs.DRIVER, *, measures: bool = False) -> Callable[[Function], Function]:
    """Register a check under its function's name."""

    def register(function: Function) -> Function:
        name = function.__name__
        if name in CHECKS:
            raise ValueError(f"there are two checks {name}")
        CHECKS[name] = Check(name, title, needs, function, measures)
        return function

    return register


def require(truth: bool, what: str) -> None:
    """Unlike ``assert`` it is there under ``python -O`` too."""
    if not truth:
        raise AssertionError(what)


def needs_packages(*names: str) -> None:
    """Raises Skip if the interpreter lacks one of them."""
    missing = [name for name in names if not _is_here(name)]
    if missing:
        raise Skip(f"there is no {', '.join(missing)} here: `make gpu-packages` gets what checks need besides PyTorch")


def _is_here(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True
