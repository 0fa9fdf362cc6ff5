"""Ports for servers that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Of 127.0.0.1, at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
