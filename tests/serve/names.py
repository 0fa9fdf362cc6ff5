"""Names of the models in `tests/serve/zoo.py`; without PyTorch, for those who choose among them."""

from __future__ import annotations

NAMES = (
    *("residual", "tied", "rotary", "recurrent", "branching", "counting", "needy", "refusing", "shared", "brain"),
    "traced",
)
