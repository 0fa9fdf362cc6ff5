"""The fixture of tests that need a rig with an emulated GPU; `test_wiring` keeps such patches out of the rig itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from carpool.daemon.memory import grants
from tests.daemon.cuda_rig import cuda_rig
from tests.daemon.rig import Rig
from tests.devices.cuda_stub import Stub


@asynccontextmanager
async def rig_that_retries(stub: Stub, retry_s: float) -> AsyncIterator[Rig]:
    """A rig whose daemon tries a grant again after so many seconds; ``stub``: it has to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grants, "RETRY_S", retry_s)
        made = cuda_rig()
        yield made
        await made.memory.copies.close()
        made.close()


@pytest.fixture
async def rig(stub: Stub) -> AsyncIterator[Rig]:
    """Such a rig, in which what is tried again is tried because something has happened."""
    async with rig_that_retries(stub, 3600.0) as made:
        yield made
