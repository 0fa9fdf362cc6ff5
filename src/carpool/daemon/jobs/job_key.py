"""Which jobs do the same work."""

from __future__ import annotations

import hashlib

import msgspec


def command_key(owner: int, cwd: str, argv: list[str]) -> str:
    """Runs of the same command line, in the same directory, by the same user, count as the same job."""
    return hashlib.sha256(msgspec.json.encode([owner, cwd, argv])).hexdigest()
