"""The setup of PyTorch's allocator in a job on a CUDA device: its segments must be ones that Carpool can move.

Not yet run on a GPU.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

#: The second name is used by PyTorch 2.9 and later.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
#: PyTorch's own functions, of versions 2.6 to 2.13, through which the allocator reads settings.
FUNCTIONS = ("_cuda_init", "_cuda_cudaCachingAllocator_set_allocator_settings", "_accelerator_setAllocatorSettings")
_EXPANDABLE = re.compile(r"(\bexpandable_segments\s*:\s*)True\b")


def fix_segments(environ: MutableMapping[str, str]) -> None:
    """Turn expandable segments off, with a warning: the allocator makes their memory itself, bypassing Carpool.

    Called right before torch is imported, so that it also finds what the script has set, and again where the allocator
    reads the variables.
    """
    asked = [name for name in VARIABLES if _EXPANDABLE.search(environ.get(name, ""))]
    for name in asked:
        environ[name] = _EXPANDABLE.sub(r"\1False", environ[name])
    if asked:
        _warn(" and ".join(asked))


def watch(functions: Any) -> None:
    """Turn expandable segments off whenever the script turns them on after importing torch.

    ``functions``: `torch._C`.
    """
    for name in FUNCTIONS:
        if hasattr(functions, name):
            setattr(functions, name, _fixing(getattr(functions, name)))


def _fixing(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def fixing(*settings: str) -> None:
        fix_segments(os.environ)
        original(*map(_fixed, settings))

    fixing._torchdynamo_disable = True  # type: ignore[attr-defined]
    return fixing


def _fixed(settings: str) -> str:
    fixed = _EXPANDABLE.sub(r"\1False", settings)
    if fixed != settings:
        _warn("the allocator's settings")
    return fixed


def _warn(where: str) -> None:
    text = f"expandable_segments in {where} is turned off: Carpool cannot move such memory"
    print(f"carpool: warning: {text}", file=sys.stderr)
