"""Carpool: many deep-learning jobs share the accelerators of one server."""

from __future__ import annotations

__version__ = "0.1.0"
