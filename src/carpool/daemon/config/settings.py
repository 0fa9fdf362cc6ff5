"""Changing the core's settings by name, for ``--set`` and PUT /v1/policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from carpool.core.model import NUMBER_SETTINGS, OPTIONAL_SETTINGS, Settings
from carpool.core.policies import POLICIES, load_policy
from carpool.core.policies.placement import PLACEMENTS, load_placement
from carpool.core.policies.registry import PolicyTimeout
from carpool.core.spelling import did_you_mean
from carpool.core.state.settings_check import check_number, check_settings
from carpool.daemon.config.limits import LARGEST, check_named_limit, named_limits_table, split_named_limits
from carpool.daemon.system.alarms import AlarmLimit
from carpool.plugins import ensure_placement, ensure_policy
from carpool.protocol.units import format_size

#: Limit for the import of a policy with all that it imports.
LOAD_LIMIT_S = 10.0


class CurrentSettings:
    """The settings in force.

    ``default_store``: budget of the host store, in bytes, unless one has been set.
    """

    def __init__(self, settings: Settings, default_store: int) -> None:
        self.current = settings
        self._default_store = default_store

    def change(self, settings: Settings) -> None:
        """Put the settings, which are on the disk, in force."""
        self.current = settings

    @property
    def for_core(self) -> Settings:
        """The settings as the core gets them, with the host store's size: the core knows no machine."""
        if self.current.host_store is not None:
            return self.current
        return dataclasses.replace(self.current, host_store=self._default_store)


def settings_table(settings: Settings) -> dict[str, int | None]:
    """Return all numeric settings by name, with those of users' policies and named limits."""
    numbers = {name: getattr(settings, name) for name in NUMBER_SETTINGS}
    return numbers | named_limits_table(settings.named_limits) | settings.extra


def changed_settings(
    settings: Settings,
    policy: str | None,
    values: Mapping[str, int | None],
    placement: str | None = None,
) -> Settings:
    """Return a copy with the changes.  Raises ValueError, for people, for unknown names and impossible values.

    Policies that are not named stay as they were loaded, whatever has become of their files.
    """
    named = dataclasses.replace(settings, policy=policy or settings.policy, placement=placement or settings.placement)
    with POLICIES.kept_on_error(), PLACEMENTS.kept_on_error():  # what is refused must not be in force by its name
        if policy is not None and policy not in POLICIES.available():
            _load(ensure_policy, policy)
        if placement is not None and placement not in PLACEMENTS.available():
            _load(ensure_placement, placement)
        return _changed(named, values)


def _load(ensure: Callable[..., None], name: str) -> None:
    """Load a policy.  Raises ValueError, also for a file or package that does not come to the end of its import."""
    try:
        AlarmLimit(LOAD_LIMIT_S)(lambda: ensure(name, trusted=True))
    except PolicyTimeout as timeout:
        raise ValueError(f"{name!r} cannot be loaded: that {timeout}") from None


def _changed(settings: Settings, values: Mapping[str, int | None]) -> Settings:
    extras = (*load_policy(settings.policy).settings, *load_placement(settings.placement).settings)
    for setting, value in values.items():  # in the order of the request: the first that is wrong is named
        if "." in setting:
            check_named_limit(setting, value)
        else:
            _check(setting, value, extras)
    named, values = split_named_limits(settings.named_limits, values)
    own: dict[str, Any] = {key: value for key, value in values.items() if key in NUMBER_SETTINGS}
    merged = settings.extra | {key: value for key, value in values.items() if key in extras and value is not None}
    extra = {key: value for key, value in merged.items() if key in extras}  # another policy has other settings
    changed = dataclasses.replace(settings, extra=extra, named_limits=named, **own)
    check_settings(changed)  # what the core refuses must never be stored: the daemon could not start again
    return changed


def check_store(budget: int | None, room: int) -> None:
    """Check that memory holds the host store beside the devices.  Raises ValueError.  ``room``: bytes they leave."""
    if budget is not None and budget > room:
        raise ValueError(
            f"a host store of {format_size(budget)} is too large: the devices leave {format_size(room)} of this "
            "machine's memory"
        )


def _check(name: str, value: int | None, extras: tuple[str, ...]) -> None:
    if name not in (*NUMBER_SETTINGS, *extras):
        known = (*NUMBER_SETTINGS, *extras)
        raise ValueError(f"unknown setting {name!r}; {did_you_mean(name, known)}known settings: {', '.join(known)}")
    if value is None and name not in OPTIONAL_SETTINGS:
        own = f"; {getattr(Settings(), name)} is its default" if name in NUMBER_SETTINGS else ""
        raise ValueError(f"{name} needs a number{own}")
    smallest = 1 if name == "max_lanes" or name == "growth_step" else 0
    if value is not None and not smallest <= value <= LARGEST:
        raise ValueError(f"{name}={value} is not between {smallest} and {LARGEST}")
    if name in NUMBER_SETTINGS:
        check_number(name, value)
