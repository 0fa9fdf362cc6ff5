"""What is kept for a shim that has not come yet."""

from __future__ import annotations

import signal

from carpool.daemon.shims.shim_table import Process


def test_a_signal_is_kept_once_however_often_it_is_asked_for() -> None:
    """Users ask as often as they like, and a shim of theirs may never come."""
    process = Process()
    for _ in range(3):
        process.keep_signal(signal.SIGTERM)
        process.keep_signal(signal.SIGKILL)
    assert process.signals == [signal.SIGTERM, signal.SIGKILL]
