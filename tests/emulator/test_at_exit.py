"""Results on an emulated GPU: no process ends during a backward pass, and an older PyTorch is refused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

from tools.emulator.results.at_exit import NAME, wait_for_backward_passes


def test_it_waits_until_such_a_thread_waits() -> None:
    began, done, over = threading.Event(), threading.Event(), threading.Event()

    def compute() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(f"{NAME}_0")
        began.set()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)  # without the interpreter's lock
        done.set()
        over.wait()

    thread = threading.Thread(target=compute)
    thread.start()
    began.wait()
    wait_for_backward_passes()
    assert done.is_set()
    over.set()
    thread.join()


def test_threads_of_others_are_not_waited_for() -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)

    thread = threading.Thread(target=compute)
    thread.start()
    wait_for_backward_passes()
    over.set()
    thread.join()


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
