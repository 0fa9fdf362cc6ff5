"""What stands in the place of a file of a home is refused at once."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from carpool.protocol.regular_files import LOG_FLAGS, open_regular, read_regular


def test_a_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"x" * 100_000
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("kind", ["fifo", "link to a fifo", "directory", "socket", "device"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, LOG_FLAGS])
def test_nothing_else_is_waited_for(tmp_path: Path, kind: str, flags: int) -> None:
    path = Path("/dev/null") if kind == "device" else tmp_path / "place"
    if "fifo" in kind:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo") if "link" in kind else (tmp_path / "fifo").rename(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    before = open_descriptors()
    with pytest.raises(OSError) as refused:
        open_regular(path, flags)
    assert refused.value.filename == str(path) and refused.value.strerror
    assert open_descriptors() == before


def test_a_log_may_be_a_device_and_is_made_for_its_owner(tmp_path: Path) -> None:
    os.close(open_regular(Path("/dev/null"), LOG_FLAGS, device=True))
    os.close(open_regular(tmp_path / "log", LOG_FLAGS, device=True))
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
