"""From the command line to what the simulator is told: one set of options per policy."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from carpool.cli.simulation.wanted import Wanted
from carpool.core.model import Allocation, Settings

if TYPE_CHECKING:
    from carpool.sim.options import Options

#: These are about turns and memory: without lanes they would have nothing to decide.
ALWAYS_LANES = ("fair", "pack")
_CORE = tuple(
    field.name for field in dataclasses.fields(Settings) if field.name not in ("policy", "allocation", "extra")
)
_OPTIONAL = ("backfill", "max_lanes")


def all_options(wanted: Wanted) -> list[Options]:
    """One per policy, in their order.  Raises UsageError for what makes no sense."""
    if len(set(wanted.policies)) != len(wanted.policies):
        raise click.UsageError("--policy names a policy twice; name each once.")
    try:
        _check_names(wanted)
        return [_options(wanted, policy) for policy in wanted.policies]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _options(wanted: Wanted, policy: str) -> Options:
    from carpool.sim.choices import check_choice, load_interference
    from carpool.sim.options import Options, check_options

    options = Options(
        devices=wanted.devices,
        settings=_settings(wanted, policy),
        device_memory=wanted.device_memory,
        interference=load_interference(wanted.sharing),
        switch_cost_us=wanted.switch_cost_us,
        retries=wanted.retries,
        declare_duration="duration" not in wanted.undeclared,
        declare_memory="memory" not in wanted.undeclared,
        record=wanted.report is not None,
    )
    check_options(options)
    check_choice(options.settings)
    return options


def _settings(wanted: Wanted, policy: str) -> Settings:
    """A setting that only some policies know is for those."""
    from carpool.sim.choices import own_settings

    lanes = wanted.lanes or policy in ALWAYS_LANES
    changes: dict[str, Any] = {name: value for name, value in wanted.settings if name in _CORE}
    if wanted.backfill is not None:
        changes["backfill"] = int(wanted.backfill)
    if wanted.quantum_us is not None:
        changes["quantum_us"] = wanted.quantum_us
    extra = {name: value for name, value in _extra(wanted).items() if name in own_settings(policy)}
    allocation = Allocation.LANES if lanes else Allocation.DEVICES
    return dataclasses.replace(Settings(), policy=policy, allocation=allocation, extra=extra, **changes)


def _extra(wanted: Wanted) -> dict[str, int]:
    """Settings that are not the core's own."""
    extra = {name: value for name, value in wanted.settings if name not in _CORE and value is not None}
    return extra | _las(wanted)


def _las(wanted: Wanted) -> dict[str, int]:
    limits = {f"las_limit_{number}_us": limit for number, limit in enumerate(wanted.las_limits_us or (), 1)}
    return limits if wanted.las_unit is None else {**limits, "las_by_devices": int(wanted.las_unit == "gpu")}


def _check_names(wanted: Wanted) -> None:
    """Every setting must be known to the core or to one of the policies.  Raises ValueError."""
    from carpool.sim.choices import own_settings

    own = {name for policy in wanted.policies for name in own_settings(policy)}
    if not own.issuperset(_las(wanted)):
        raise ValueError("--las-limits and --las-unit are for las; add --policy las")
    _check_backfill(wanted)
    for option, name, given in (
        ("--quantum", "quantum_us", wanted.quantum_us),
        ("--backfill", "backfill", wanted.backfill),
    ):
        if given is not None and name in dict(wanted.settings):
            raise ValueError(f"{option} and --set {name} say the same thing; give one of them")
    for name, value in wanted.settings:
        if name not in _CORE and name not in own:
            raise ValueError(f"unknown setting {name!r}; known settings: {', '.join((*_CORE, *sorted(own)))}")
        if value is None and name not in _OPTIONAL:
            raise ValueError(f"{name} needs a number")


def _check_backfill(wanted: Wanted) -> None:
    """Policies that preempt on whole devices skip what does not fit anyway: the option would be ignored silently."""
    from carpool.sim.choices import always_skips

    whole = [policy for policy in wanted.policies if policy not in ALWAYS_LANES and not wanted.lanes]
    if wanted.backfill is not None and whole == list(wanted.policies) and all(map(always_skips, whole)):
        raise ValueError(f"--backfill has no meaning for {', '.join(whole)}: a policy that preempts takes all that fit")
