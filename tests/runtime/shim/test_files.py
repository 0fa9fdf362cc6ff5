"""What a shim writes down is whole, or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carpool.runtime.shim.__main__ import _write_file


def test_a_write_that_takes_a_part_only_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is almost full does that, and a half exit.json says nothing of the job's end."""
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:5]))
    _write_file(str(tmp_path), "exit.json", b'{"code": 3, "signal": null}')
    assert (tmp_path / "exit.json").read_bytes() == b'{"code": 3, "signal": null}'
