"""Suggests the name that was meant by a mistyped one, for packages built on the protocol."""

from __future__ import annotations

from carpool.core.spelling import did_you_mean

__all__ = ["did_you_mean"]
