"""The daemon's devices at this moment, and a log without repetitions: a kubelet's day has many seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import ClientError, DaemonClient

#: A daemon that does not answer for so long counts as down.
ANSWERS_S = 10.0


class SaidOnce:
    """Passes a text on to ``log`` unless it repeats the last one; an empty text is none, and is not passed on."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._text = ""

    def now(self, text: str) -> None:
        """Note what there is to say at present."""
        if text and text != self._text:
            self._log("%s", text)
        self._text = text


def asked_devices(home: Path, said: SaidOnce, otherwise: str) -> list[DeviceInfo] | None:
    """Return the daemon's devices; None if it does not answer: then ``otherwise`` is said, with the reason."""
    try:
        with DaemonClient(home, timeout_s=ANSWERS_S) as client:
            return client.devices()
    except (ClientError, OSError) as error:
        said.now(f"{otherwise}: {error}")
        return None
