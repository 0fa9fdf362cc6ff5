"""What settings may be: checked before anything changes."""

from __future__ import annotations

from dataclasses import fields

from carpool.core.model import Micros, Settings
from carpool.core.policies import Policy, load_policy

_LEAST = {"growth_step": 1, "max_lanes": 1, "warm_limit": 1, "measured_after": 1, "max_switch_share_ppm": 1}


def check_settings(settings: Settings) -> Policy:
    """The policy that the settings name.  Raises ValueError that says which setting is wrong and why."""
    for part in fields(Settings):
        number = getattr(settings, part.name)
        least = _LEAST.get(part.name, 0)
        if isinstance(number, int) and number < least:
            raise ValueError(f"{part.name} is {number}; it must be at least {least}")
    policy = load_policy(settings.policy)
    if settings.backfill not in (None, 0, 1):
        raise ValueError(f"backfill is {settings.backfill}; it must be 0 or 1, or not set")
    unknown = sorted(set(settings.extra) - set(policy.settings))
    if unknown:
        known = ", ".join(policy.settings) or "none"
        raise ValueError(f"{settings.policy} has no setting {', '.join(unknown)}; its own settings: {known}")
    if (check_own := getattr(policy, "check", None)) is not None:
        check_own(settings)
    return policy


def check_quantum(quantum_us: Micros | None) -> None:
    if quantum_us is not None and quantum_us < 0:
        raise ValueError(f"quantum_us is {quantum_us}; it must be at least 0")
