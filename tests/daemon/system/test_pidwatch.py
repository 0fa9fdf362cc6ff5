"""Processes are watched, also by a daemon that has no descriptors at first."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess

import pytest

from carpool.daemon.system import pidwatch
from carpool.daemon.system.pidwatch import PidWatch


async def test_a_process_that_cannot_be_watched_yet_has_not_ended(
    first: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon once took it for ended, and waited in its loop until it had."""
    refused, watched, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    opening = os.pidfd_open

    def refused_at_first(pid: int) -> int:
        if not refused.is_set():
            refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        watched.set()
        return opening(pid)

    monkeypatch.setattr(os, "pidfd_open", refused_at_first)
    monkeypatch.setattr(pidwatch, "AGAIN_S", 0.0)
    watch = PidWatch(first.pid, ended.set)
    assert refused.is_set() and not watch.over
    await asyncio.wait_for(watched.wait(), 30)
    assert not watch.over and not ended.is_set()
    first.kill()
    await asyncio.wait_for(ended.wait(), 30)
