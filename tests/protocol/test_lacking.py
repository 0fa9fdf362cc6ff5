"""What is missing, and where, in words."""

from __future__ import annotations

import pytest

from carpool.protocol.lacking import lacks


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("torch", "/v/python lacks torch: /v/python -m pip install torch"),
        ("torch.nn", "/v/python lacks torch.nn: /v/python -m pip install torch"),
        (
            "shop.models",
            "/v/python lacks shop.models: install it there (/v/python -m pip ...), or work from a directory",
        ),
        (None, "/v/python lacks a module that it does not name"),
    ],
)
def test_what_an_interpreter_lacks(module: str | None, says: str) -> None:
    assert lacks(module, "/v/python").startswith(says)
