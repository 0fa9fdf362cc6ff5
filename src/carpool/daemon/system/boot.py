"""Which start of the machine this is."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's own identifier of this start."""
    return BOOT_ID.read_text().strip()
