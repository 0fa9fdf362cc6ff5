"""Packages that an interpreter lacks (a job's, a model's or Carpool's own), and how to install them."""

from __future__ import annotations

import json
import shlex
import sys
import urllib.parse
from pathlib import Path
from typing import Any

#: Packages that Carpool itself imports there.  Their modules and their distributions have the same names.
NEEDED = ("torch", "safetensors", "numpy")


#: The packages of the extras of `pyproject.toml`.
EXTRAS = {
    "cuda": ("cuda-bindings>=12.8", "nvidia-ml-py>=13.580"),
    "report": ("plotly>=6",),
    "k8s": ("grpcio>=1.85.1", "protobuf>=7.36"),
}


def extra_hint(extra: str) -> str:
    """Return the command that installs an extra: from where Carpool itself came, else its packages alone.

    A package index may lack Carpool, or have another project of that name.
    """
    import importlib.metadata  # needed for this message only

    try:
        made = importlib.metadata.distribution("carpool").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        made = None
    wanted = _from_source(json.loads(made), extra) if made else []
    return shlex.join([sys.executable, "-m", "pip", "install", *(wanted or EXTRAS[extra])])


def _from_source(source: dict[str, Any], extra: str) -> list[str]:
    """Return pip's arguments for the extra; empty for a path that no longer exists.  ``source``: as in PEP 610."""
    url = urllib.parse.urlsplit(source["url"])
    if url.scheme != "file":
        vcs = source.get("vcs_info")
        at = f"{vcs['vcs']}+{source['url']}@{vcs['commit_id']}" if vcs else source["url"]
        return [f"carpool[{extra}] @ {at}"]
    path = urllib.parse.unquote(url.path)
    editable = ["-e"] if source.get("dir_info", {}).get("editable") else []
    return [*editable, f"{path}[{extra}]"] if Path(path).exists() else []


def hint_for(module: str, python: str) -> str:
    """Return how ``python`` gets a module; for modules that Carpool does not need, the distribution is unknown."""
    name = module.partition(".")[0]
    if name in NEEDED:
        return f"{python} -m pip install {name}"
    return f"install it there ({python} -m pip ...), or work from a directory in which it can be imported"


def lacks(module: str | None, python: str) -> str:
    """Return a text that says what is missing, in which interpreter, and what to do.

    ``module``: as in ModuleNotFoundError.
    """
    if module is None:
        return f"{python} lacks a module that it does not name"
    return f"{python} lacks {module}: {hint_for(module, python)}"
