"""PyTorch without what eager training never calls: jobs of `make test` start in half of the processor time.

The first optimizer of a process imports ``torch._dynamo`` for two functions that do nothing in eager training, and that
takes as long as PyTorch itself; here a module with just these two stands in its place.  ``import torch`` itself loads
the functions of tensors without data and the exporter, a third of its time; here are empty modules.  `make test-all`
has the whole PyTorch everywhere, and so have always the runs without Carpool whose results tests compare with.
"""

import sys
from types import ModuleType

for _unused in ("torch._meta_registrations", "torch.export"):
    sys.modules[_unused] = ModuleType(_unused)
_compiler = ModuleType("torch._dynamo")
_compiler.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
_compiler.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
sys.modules["torch._dynamo"] = _compiler
