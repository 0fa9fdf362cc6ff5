"""What a request may do to a model of `tests/e2e/hosted.py`; without PyTorch, for those who ask."""

from __future__ import annotations

STAGE = "TEST_STAGE"
WIDTH = 512  # so that a layer is 1 MiB
NOTHING, DIE_AT_ONCE, DIE_HALFWAY, STAY = range(4)
