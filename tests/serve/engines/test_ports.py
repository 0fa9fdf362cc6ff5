"""Which user listens on a port."""

from __future__ import annotations

import os
import socket

import pytest

from carpool.serve.engines.ports import free_port, listening_user

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(("family", "address"), [(V4, "127.0.0.1"), (V4, "0.0.0.0"), (V6, "::")])
def test_the_user_who_listens(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as listener, socket.socket() as client:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert listening_user(port) is None
        listener.listen()
        client.connect(("127.0.0.1", port))
        assert listening_user(port) == os.geteuid()
        assert listening_user(client.getsockname()[1]) is None


@pytest.mark.parametrize(("address", "user"), [("127.0.0.1", 4711), ("127.0.0.2", None)])
def test_another_user(address: str, user: int | None) -> None:
    """One who has the port at another address is in no engine's way."""
    with socket.socket() as listener:
        os.fchown(listener.fileno(), 4711, -1)
        listener.bind((address, 0))
        listener.listen()
        assert listening_user(listener.getsockname()[1]) == user


def test_a_free_port() -> None:
    assert listening_user(free_port()) is None
