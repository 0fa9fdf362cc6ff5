"""Makes the contract suite importable for the tests of each kind of device."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
