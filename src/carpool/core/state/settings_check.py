"""Checks of settings, before anything changes."""

from __future__ import annotations

from carpool.core.model import NUMBER_SETTINGS, Allocation, Micros, Serving, Settings
from carpool.core.policies import Policy, load_policy
from carpool.core.policies.placement import PlacementPolicy, load_placement

_LEAST = {
    "growth_step": 1,
    "max_lanes": 1,
    "max_jobs": 1,
    "warm_limit": 1,
    "measured_after": 1,
    "max_switch_share_ppm": 1,
}
#: First parts of the names in `Settings.named_limits`: of groups, and of what a user may have at once.
GROUP = "group"
NAMED_LIMITS = (GROUP, "user_running", "user_devices")
_TRUTHS = ("placement_strict", "use_estimates", "refuse_growth")


def check_settings(settings: Settings) -> tuple[Policy, PlacementPolicy]:
    """Check the settings, and load the policies that they name.

    Raises ValueError that says which setting is wrong and why.
    """
    for name in NUMBER_SETTINGS:
        check_number(name, getattr(settings, name))
    policy, placement = load_policy(settings.policy), load_placement(settings.placement)
    _check_named_limits(settings)
    _check_extra(settings, policy, placement)
    return policy, placement


def check_number(name: str, number: int | None) -> None:
    """Check one setting that is a number.  Raises ValueError that says what is allowed."""
    least = _LEAST.get(name, 0)
    if number is not None and number < least:
        raise ValueError(f"{name} is {number}; it must be at least {least}")
    if name == "backfill" and number not in (None, 0, 1):
        raise ValueError(f"backfill is {number}; it must be 0 or 1, or not set")
    if name == "serving" and number not in tuple(Serving):
        raise ValueError(f"serving is {number}; it must be 0 (edf), 1 (fcfs) or 2 (priority)")
    if name in _TRUTHS and number not in (0, 1):
        raise ValueError(f"{name} is {number}; it must be 0 or 1")


def _check_named_limits(settings: Settings) -> None:
    for name, most in settings.named_limits.items():
        _check_named_limit(name, most)
    limited = bool(settings.named_limits) or (settings.user_running, settings.user_devices) != (None, None)
    if limited and settings.allocation is Allocation.DEVICES:
        raise ValueError("user_running, user_devices and groups are for lanes: jobs have whole devices here")


def _check_named_limit(name: str, most: int) -> None:
    kind, _, whose = name.partition(".")
    if not whose or kind not in NAMED_LIMITS or (kind != GROUP and not whose.isdecimal()):
        known = ", ".join((f"{GROUP}.NAME", *(f"{each}.UID" for each in NAMED_LIMITS if each != GROUP)))
        raise ValueError(f"there is no limit {name!r}; limits with a name are {known}")
    if most < 0:
        raise ValueError(f"{name} is {most}; it must be at least 0")


def _check_extra(settings: Settings, policy: Policy, placement: PlacementPolicy) -> None:
    """Check the policies' own settings."""
    unknown = sorted(set(settings.extra) - {*policy.settings, *placement.settings})
    if unknown:
        known = ", ".join(policy.settings) or "none"
        raise ValueError(f"{settings.policy} has no setting {', '.join(unknown)}; its own settings: {known}")
    for each in (policy, placement):
        if (check_own := getattr(each, "check", None)) is not None:
            check_own(settings)


def check_quantum(quantum_us: Micros | None) -> None:
    """Check the time quantum of a device; None: the settings decide.  Raises ValueError."""
    if quantum_us is not None and quantum_us < 0:
        raise ValueError(f"quantum_us is {quantum_us}; it must be at least 0")
