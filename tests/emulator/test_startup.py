"""A PyTorch whose operators cannot be overridden is refused: zeros would be taken for results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Stands for PyTorch 2.6, which has no ``torch.library.get_kernel``.
OLD = """
from types import SimpleNamespace
__version__, version, library = "2.6.0+cu124", SimpleNamespace(cuda="12.4"), SimpleNamespace()
"""


def test_an_older_pytorch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(OLD)
    paths = [str(ROOT), str(tmp_path)]
    code = f"import sys; sys.path[:0] = {paths}; import tools.emulator.results.startup, torch; print(1)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (86, "")
    assert "the results of PyTorch 2.6.0+cu124 cannot be computed" in ended.stderr
    assert "use PyTorch 2.11 or later, or EMULATOR_RESULTS=0" in ended.stderr
