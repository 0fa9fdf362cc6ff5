"""Jobs that fail as often as they are told, and jobs that wait until a test lets them go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carpool.devices.base import DeviceBackend, DeviceError
from tests.daemon.daemon_harness import Daemon

MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB."
#: Counts its starts in a file, and fails as often as it is told.
FAILS = """
import os, sys
starts = sys.argv[1]
with open(starts, "a") as file:
    file.write("x")
number = os.path.getsize(starts)
print("start", number, flush=True)
if number <= int(sys.argv[2]):
    sys.exit(sys.argv[3] if sys.argv[3] != "1" else 1)
"""
WAITS = "import sys; print('here', flush=True); open(sys.argv[1]).read(); sys.exit(int(sys.argv[2]))"


def fails(daemon: Daemon, starts: Path, times: int, how: str = "1", **fields: Any) -> int:
    return daemon.submit(sys.executable, "-u", "-c", FAILS, str(starts), str(times), how, **fields)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """Whoever reads it waits until a test writes to it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    yield path
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def let_go(pipe: Path) -> None:
    pipe.write_bytes(b"")


@contextmanager
def without_banks(device: DeviceBackend) -> Iterator[None]:
    """The device has no bank to give."""

    def fail(*_: object) -> int:
        raise DeviceError("too many open files")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "take_bank", fail)
        yield
