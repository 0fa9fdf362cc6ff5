"""What somebody who mistyped a name may have meant, for what stands on the protocol."""

from __future__ import annotations

from carpool.core.spelling import did_you_mean

__all__ = ["did_you_mean"]
