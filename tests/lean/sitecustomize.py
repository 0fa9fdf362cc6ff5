"""PyTorch without what eager training never calls: jobs of `make test` start in half of the processor time.

The first optimizer of a process imports ``torch._dynamo`` for two functions that do nothing in eager training, and that
takes as long as PyTorch itself; here a module with just these two stands in its place.  ``import torch`` itself loads
the functions of tensors without data and the exporter, a third of its time; here are modules of next to nothing.  The
profiler would import the compiler's back end, to ask it for one setting.
`make test-all` has the whole PyTorch everywhere, and so have always the runs on the host whose results tests compare
with.
"""

import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType, SimpleNamespace


class Registrations:
    """Finds `meta_registrations.py` for a module of PyTorch."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        if name != "torch._meta_registrations":
            return None
        file = __file__.replace("sitecustomize", "meta_registrations")
        return ModuleSpec(name, SourceFileLoader(name, file), origin=file)


sys.meta_path.insert(0, Registrations)
sys.modules["torch.export"] = ModuleType("torch.export")
_compiler = ModuleType("torch._dynamo")
_compiler.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
_compiler.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
sys.modules["torch._dynamo"] = _compiler
_back_end, _settings = ModuleType("torch._inductor"), ModuleType("torch._inductor.config")
_settings.triton = SimpleNamespace(cudagraphs=False)  # type: ignore[attr-defined]
_back_end.config = _settings  # type: ignore[attr-defined]
sys.modules |= {module.__name__: module for module in (_back_end, _settings)}
