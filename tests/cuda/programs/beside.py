"""Has the job's seat and a little memory, and starts another program of this directory, whose end is its own.

beside.py RESULT PROGRAM ARGUMENTS...
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
    result, program, *arguments = sys.argv[1:]
    command = [sys.executable, str(Path(__file__).with_name(f"{program}.py")), result, *arguments]
    sys.exit(subprocess.run(command).returncode)


main()
