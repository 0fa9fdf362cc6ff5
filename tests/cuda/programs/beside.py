"""Has the job's seat and a little memory, and starts greedy.py, whose arguments are these.

beside.py RESULT MIB
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu


def main() -> None:
    gpu = Gpu()
    small = gpu.segment(MIB)
    gpu.fill(small, MIB, 7)
    gpu.word(small)
    subprocess.run([sys.executable, str(Path(__file__).with_name("greedy.py")), *sys.argv[1:]], check=True)


main()
