"""The name under which users' policies of version 0.1 import their views; new ones import `carpool.policies`."""

from __future__ import annotations

from carpool.core.policies.view import DeviceView, JobView, LaneView, LazyMap, View

__all__ = ["DeviceView", "JobView", "LaneView", "LazyMap", "View"]
