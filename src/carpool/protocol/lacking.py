"""What an interpreter lacks, that of a job, of a model or Carpool's own, and how it gets it."""

from __future__ import annotations

import json
import shlex
import sys
import urllib.parse
from pathlib import Path
from typing import Any

#: What Carpool itself imports there.  Their modules and their distributions have the same names.
NEEDED = ("torch", "safetensors", "numpy")


#: What the extras of `pyproject.toml` consist of.
EXTRAS = {
    "cuda": ("cuda-bindings>=12.8", "nvidia-ml-py>=13.580"),
    "report": ("plotly>=6",),
    "k8s": ("grpcio>=1.85.1", "protobuf>=7.36"),
    "timeline": ("perfetto>=0.59",),
}


def extra_hint(extra: str) -> str:
    """The command by which this interpreter gets an extra: from where Carpool itself is, else its packages alone.

    An index need not have Carpool, and may have something else of that name.
    """
    import importlib.metadata  # only wanted in this message

    try:
        made = importlib.metadata.distribution("carpool").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        made = None
    wanted = _from_source(json.loads(made), extra) if made else []
    return shlex.join([sys.executable, "-m", "pip", "install", *(wanted or EXTRAS[extra])])


def _from_source(source: dict[str, Any], extra: str) -> list[str]:
    """``source``: as in PEP 610.  Empty for a path at which there is nothing any more."""
    url = urllib.parse.urlsplit(source["url"])
    if url.scheme != "file":
        vcs = source.get("vcs_info")
        at = f"{vcs['vcs']}+{source['url']}@{vcs['commit_id']}" if vcs else source["url"]
        return [f"carpool[{extra}] @ {at}"]
    path = urllib.parse.unquote(url.path)
    editable = ["-e"] if source.get("dir_info", {}).get("editable") else []
    return [*editable, f"{path}[{extra}]"] if Path(path).exists() else []


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
