"""PyTorch without its compiler: in jobs of `make test`, which start in half of the processor time.

The first optimizer of a process imports ``torch._dynamo`` for two functions that do nothing in eager training, and that
takes as long as PyTorch itself.  Here a module with just these two stands in its place.  `make test-all` has the whole
PyTorch everywhere, and so have always the runs without Carpool whose results tests compare with.
"""

import sys
from types import ModuleType

_compiler = ModuleType("torch._dynamo")
_compiler.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
_compiler.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
sys.modules["torch._dynamo"] = _compiler
