"""What makes a process one of the emulated GPU's: files of its environment, and variables.  Standard library only.

``python3 tools/emulator/environment.py VENV`` completes a virtual environment in which PyTorch's CUDA build is
installed: it compiles the libraries into ``VENV/emulated-gpu`` and lets interpreters there load `emulator.results`, by
this name because programs may have a package of their own that is named tools.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

EMULATOR = Path(__file__).resolve().parent
ROOT = EMULATOR.parents[1]
sys.path.insert(0, str(ROOT))
#: With PyTorch's CUDA build, as `make emulated-gpu` makes it.
VENV = Path(os.environ.get("EMULATED_GPU_VENV", ROOT / ".venv-emulated"))

from tools.emulator.build import build_all  # noqa: E402 - this file is a program, too

#: Executed by `site` at the start of every interpreter.
STARTUP = 'import os; os.environ.get("EMULATOR_RESULTS") == "1" and __import__("emulator.results.startup")\n'
CUDA = "import torch, sys; sys.exit(torch.version.cuda is None)"
WHERE = "import sysconfig; print(sysconfig.get_path('purelib'))"


class EnvironmentProblem(Exception):
    """What is missing, and what to do."""


def libraries_of(venv: Path) -> Path:
    return venv / "emulated-gpu"


def complete(venv: Path) -> None:
    """Raises EnvironmentProblem if there is no PyTorch of CUDA, RuntimeError if a library cannot be compiled."""
    packages = Path(_said(venv, WHERE))
    if not (packages / "torch" / "lib" / "libtorch_cuda.so").exists():
        raise EnvironmentProblem(
            f"{venv} has no CUDA build of PyTorch: remove {venv} and run `make emulated-gpu` where the package index "
            "can be reached (0.5 GB, once)"
        )
    build_all(libraries_of(venv), packages / "torch" / "lib")
    link = packages / "emulator"
    link.unlink(missing_ok=True)
    link.symlink_to(EMULATOR)
    (packages / "emulated_gpu.pth").write_text(STARTUP)


def variables(venv: Path, devices: str, state: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of a process on emulated GPUs: ``devices`` are their sizes ("1GiB,1GiB"), ``state`` what processes share."""
    paths = [str(libraries_of(venv)), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    return {
        **base,
        "PATH": os.pathsep.join([str(venv / "bin"), base.get("PATH", os.defpath)]),
        "LD_LIBRARY_PATH": os.pathsep.join(paths),
        "EMULATOR_DEVICES": devices,
        "EMULATOR_STATE": str(state),
        "EMULATOR_RESULTS": base.get("EMULATOR_RESULTS", "1"),
    }


def _said(venv: Path, code: str) -> str:
    """What the environment's interpreter prints.  Raises EnvironmentProblem."""
    python = venv / "bin" / "python"
    if not python.exists():
        raise EnvironmentProblem(f"{venv} is no virtual environment: run `make emulated-gpu`")
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    try:
        complete(Path(sys.argv[1]).absolute())
    except (EnvironmentProblem, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
