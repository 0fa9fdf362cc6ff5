"""A process does not end while a thread of PyTorch's backward pass is under way."""

from __future__ import annotations

import hashlib
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
