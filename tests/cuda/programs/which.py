"""Writes down which devices it sees, although it says which it wants, as some scripts do.

which.py RESULT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu

gpu = Gpu()
gpu.fill(gpu.segment(MIB), MIB, 1)
Path(sys.argv[1]).write_text(json.dumps({"devices": gpu.devices()}))
