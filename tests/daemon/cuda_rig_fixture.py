"""The fixture of tests that need a rig with an emulated GPU; `test_wiring` keeps such patches out of the rig itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from carpool.daemon.memory import grants
from tests.daemon.cuda_rig import cuda_rig
from tests.daemon.rig import Rig
from tests.devices.cuda_stub import Stub


@pytest.fixture
async def rig(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """Such a rig, in which what is tried again is tried because something has happened."""
    monkeypatch.setattr(grants, "RETRY_S", 3600.0)
    made = cuda_rig()
    yield made
    await made.memory.copies.close()
    made.close()
