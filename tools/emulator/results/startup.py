"""Loaded by every interpreter of the emulated GPU's environment: as soon as PyTorch is imported, results are computed.

With EMULATOR_RESULTS=1 only; without it kernels compute nothing, which is for measuring what launches cost.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from . import WRONG

TORCH = "torch"


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds PyTorch as without it, once, and puts a loader around its own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != TORCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(TORCH)
        if spec is not None and spec.loader is not None:
            spec.loader = _TorchLoader(spec.loader)
        return spec


class _TorchLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.version.cuda is not None:
            _need_overrides(module)
            from .install import install

            install()


def _need_overrides(torch: ModuleType) -> None:
    """Ends the process where operators cannot be overridden: all results would be zeros or rubbish."""
    if not hasattr(torch.library, "get_kernel"):
        text = (
            f"emulated GPU: the results of PyTorch {torch.__version__} cannot be computed: use PyTorch 2.11 or later, "
        )
        print(f"{text}or EMULATOR_RESULTS=0, with which kernels compute nothing", file=sys.stderr, flush=True)
        os._exit(WRONG)


sys.meta_path.insert(0, _TorchFinder())
