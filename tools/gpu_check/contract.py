"""The contract suite of devices on whatever driver there is: on a GPU, the real one.  Run by ``checks/contract.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "devices"))

from tests.devices.cuda_contract import CudaContract


class TestCuda(CudaContract):
    """Nothing has to be done before the driver is used."""
