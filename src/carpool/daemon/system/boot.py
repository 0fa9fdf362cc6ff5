"""Identifies the present boot of the machine."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's identifier of this boot."""
    return BOOT_ID.read_text().strip()
