"""The stub driver (``tools/emulator/``) for tests of the CUDA device: a GPU that is none, as fixtures."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.daemon.config.options import context_size

MEMORY = 256 * MIB


def context_of(memory: int, modules: int = 0) -> int:
    """Bytes that a process has by using a device, when it has launched something from so many modules."""
    first = context_size(memory) * 2 // 3 // 4096 * 4096
    return first + modules * (first // 8 // 4096 * 4096)


CONTEXT = context_of(MEMORY)
#: Of an agent that has looked for zeros.
LOOKED = context_of(MEMORY, modules=1)
PATIENCE_S = 20.0


class Stub:
    """The environment of one stub GPU (or several), and what only a test may know of it."""

    def __init__(self, library: Path, patch: pytest.MonkeyPatch) -> None:
        shm = Path("/dev/shm")
        self.state = Path(tempfile.mkdtemp(prefix="carpool-stub-", dir=shm if shm.is_dir() else None))
        self._patch = patch
        patch.setenv("LD_LIBRARY_PATH", os.fspath(library))
        patch.setenv("EMULATOR_STATE", os.fspath(self.state))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        self.devices(MEMORY)

    def devices(self, *memory: int) -> None:
        """For processes that are started from now on, as everything here."""
        self._patch.setenv("EMULATOR_DEVICES", ",".join(f"{size >> 20}MiB" for size in memory))

    def environment(self) -> dict[str, str]:
        """For a process that does not inherit it."""
        names = ("LD_LIBRARY_PATH", *(name for name in os.environ if name.startswith("EMULATOR_")))
        return {name: os.environ[name] for name in names}

    def fail(self, rules: str) -> None:
        """``function=result@n``: the n-th call of each process fails."""
        self._patch.setenv("EMULATOR_FAIL", rules)

    def hide(self, functions: str) -> None:
        """As with an older driver."""
        self._patch.setenv("EMULATOR_HIDE", functions)

    def used(self) -> int:
        """Bytes of device memory that some process holds."""
        directory = self.state / "memory"
        return sum(map(_held_bytes, directory.iterdir())) if directory.is_dir() else 0

    def wait_until_free(self) -> None:
        """For what another process does by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while self.used():
            assert time.monotonic() < deadline, f"{self.used()} bytes are still in use"
            time.sleep(0.01)

    def remove(self) -> None:
        shutil.rmtree(self.state)


@pytest.fixture
def stub(stub_driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """One stub GPU for every process that is started from now on; in the end its memory must be free."""
    made = Stub(stub_driver.parent, monkeypatch)
    yield made
    try:
        made.wait_until_free()  # a shim that has said goodbye holds its memory until its interpreter has ended
    finally:
        made.remove()


def _held_bytes(file: Path) -> int:
    """The size of a file that somebody holds; whoever finds one that nobody does removes it."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(file.name.split(".")[1])
    except FileNotFoundError:
        pass
    return 0
