"""What an interpreter of a job or a model lacks, and how it gets it."""

from __future__ import annotations

#: What Carpool itself imports there.  Their modules and their distributions have the same names.
NEEDED = ("torch", "safetensors", "numpy")


def hint_for(module: str, python: str) -> str:
    """How ``python`` gets a module; of modules that are not Carpool's affair nobody here knows the distribution."""
    name = module.partition(".")[0]
    if name in NEEDED:
        return f"{python} -m pip install {name}"
    return f"install it there ({python} -m pip ...), or work from a directory in which it can be imported"


def lacks(module: str | None, python: str) -> str:
    """For people: what is missing, in which interpreter, and what to do.  ``module``: as in ModuleNotFoundError."""
    if module is None:
        return f"{python} lacks a module that it does not name"
    return f"{python} lacks {module}: {hint_for(module, python)}"
