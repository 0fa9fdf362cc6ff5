"""Conversion of the command line to the simulator's options: one set per policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from carpool.cli.base.presets import PRESETS
from carpool.cli.simulation.options import ESTIMATE_COLUMN, Wanted
from carpool.core.model import NUMBER_SETTINGS, OPTIONAL_SETTINGS, Allocation, Oversubscribe, Settings
from carpool.core.spelling import did_you_mean

if TYPE_CHECKING:
    from carpool.sim.by_name import Policy
    from carpool.sim.model.options import Options
    from carpool.sim.model.served_models import Services
    from carpool.sim.model.trace_job import TraceJob

#: Policies about turns and memory, which have nothing to decide without lanes.
ALWAYS_LANES = frozenset({"fair", "pack", "tq"})
MICROS = 1_000_000  # of a second


def all_options(wanted: Wanted, services: Services | None, machine: Mapping[str, Any]) -> list[Options]:
    """Return the options for each policy, in order.  ``machine``: more fields of `Options`.

    Raises UsageError for options that make no sense together.
    """
    from carpool.sim.by_name import load_choices

    if len(set(wanted.policies)) != len(wanted.policies):
        raise click.UsageError("--policy names a policy twice; name each once.")
    try:
        chosen = load_choices(wanted.policies, wanted.placement)
        _check_names(wanted, chosen)
        return [_options(wanted, name, policy, services, machine) for name, policy in chosen.items()]
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def check_estimator(wanted: Wanted, jobs: Sequence[TraceJob]) -> None:
    """Check that a job has the column that --estimator names.  Raises UsageError."""
    name = (wanted.estimator or "").partition(ESTIMATE_COLUMN)[2]
    if name and not any(name in dict(job.estimates) for job in jobs):
        raise click.UsageError(f"--estimator {wanted.estimator}: no job has an estimate_{name}_mib.")


def _options(
    wanted: Wanted, name: str, policy: Policy, services: Services | None, machine: Mapping[str, Any]
) -> Options:
    from carpool.sim.by_name import load_interference
    from carpool.sim.model.options import Options, check_options, suggested_telemetry_us
    from carpool.sim.model.trace_job import WHOLE_PPM

    options = Options(
        devices=wanted.devices,
        settings=_settings(wanted, name, policy),
        device_memory=wanted.device_memory,
        oversubscribe=Oversubscribe(wanted.oversubscribe or Oversubscribe.AUTO),
        interference=load_interference(wanted.slowdown, wanted.interference_ppm),
        switch_cost_us=wanted.switch_cost_us,
        retries=wanted.retries,
        declare_duration="duration" not in wanted.undeclared,
        declare_memory="memory" not in wanted.undeclared and wanted.estimator != "none",
        estimator=(wanted.estimator or "").partition(ESTIMATE_COLUMN)[2],
        warmup_us=wanted.warmup_us,
        warmup_share_ppm=wanted.warmup_share_ppm if wanted.warmup_us else WHOLE_PPM,
        record=wanted.report is not None or wanted.runs_csv is not None,
        services=services,
        **machine,
    )
    if wanted.copy_rate is not None:
        rate = wanted.copy_rate // MICROS
        options = dataclasses.replace(options, offload_bytes_per_us=rate, restore_bytes_per_us=rate)
    every_us = wanted.telemetry_us
    if every_us is None:
        every_us = suggested_telemetry_us(options.settings, options.devices)
    options = dataclasses.replace(options, telemetry_us=every_us)
    check_options(options)
    return options


def _settings(wanted: Wanted, name: str, policy: Policy) -> Settings:
    """Return the settings for a policy; a setting that only some policies know goes to these only."""
    changes: dict[str, Any] = _preset(wanted)
    changes |= {setting: value for setting, value in wanted.settings if setting in NUMBER_SETTINGS}
    backfill = None if wanted.backfill is None else int(wanted.backfill)
    options = {"placement": wanted.placement, "backfill": backfill, "quantum_us": wanted.quantum_us}
    options["host_store"] = wanted.store
    changes |= {setting: value for setting, value in options.items() if value is not None}
    extra = {setting: value for setting, value in _extra(wanted).items() if setting in policy.settings}
    allocation = Allocation.LANES if in_lanes(wanted) else Allocation.DEVICES
    return dataclasses.replace(Settings(), policy=name, allocation=allocation, extra=extra, **changes)


def in_lanes(wanted: Wanted) -> bool:
    """Whether jobs share devices, under all policies or none: figures with and without lanes cannot be compared.

    Jobs of a journal have shared devices, and presets and placements are about jobs that do.
    """
    named = (wanted.journal, wanted.preset, wanted.placement)
    return wanted.lanes or any(one is not None for one in named) or not ALWAYS_LANES.isdisjoint(wanted.policies)


def _preset(wanted: Wanted) -> dict[str, Any]:
    """Return the settings of the preset, without its policy."""
    if wanted.preset is None:
        return {}
    chosen = PRESETS[wanted.preset]
    return {"placement": chosen.placement, **chosen.settings}


def _extra(wanted: Wanted) -> dict[str, int]:
    """Return settings that are not the core's own."""
    extra = {name: value for name, value in wanted.settings if name not in NUMBER_SETTINGS and value is not None}
    return extra | _las(wanted)


def _las(wanted: Wanted) -> dict[str, int]:
    limits = {f"las_limit_{number}_us": limit for number, limit in enumerate(wanted.las_limits_us or (), 1)}
    return limits if wanted.las_unit is None else {**limits, "las_by_devices": int(wanted.las_unit == "gpu")}


def _check_names(wanted: Wanted, chosen: Mapping[str, Policy]) -> None:
    """Check that the core or a policy knows each setting, and that options fit together.  Raises ValueError."""
    own = {name for policy in chosen.values() for name in policy.settings}
    if not own.issuperset(_las(wanted)):
        raise ValueError("--las-limits and --las-unit are for las; add --policy las")
    if wanted.estimator is not None and "memory" in wanted.undeclared:
        raise ValueError("--estimator and --undeclared memory both choose the memory estimates; give one of them")
    _check_backfill(wanted, chosen)
    _check_moves(wanted)
    if wanted.services is not None and not in_lanes(wanted):
        raise ValueError("--services: services share devices in lanes only; add --lanes")
    _check_settings(wanted, own)


def _check_settings(wanted: Wanted, own: Collection[str]) -> None:
    """Check settings; ``own``: those of the policies.  Raises ValueError."""
    for option, name, given in (
        ("--quantum", "quantum_us", wanted.quantum_us),
        ("--backfill", "backfill", wanted.backfill),
        ("--store", "host_store", wanted.store),
    ):
        if given is not None and name in dict(wanted.settings):
            raise ValueError(f"{option} and --set {name} say the same thing; give one of them")
    for name, value in wanted.settings:
        if name not in NUMBER_SETTINGS and name not in own:
            known = (*NUMBER_SETTINGS, *sorted(own))
            raise ValueError(f"unknown setting {name!r}; {did_you_mean(name, known)}known settings: {', '.join(known)}")
        if value is None and name not in OPTIONAL_SETTINGS:
            raise ValueError(f"{name} needs a number")


def _check_moves(wanted: Wanted) -> None:
    """Check that memory moves only with lanes: whole devices are never short of memory.  Raises ValueError."""
    given = {"--oversubscribe": wanted.oversubscribe, "--store": wanted.store, "--copy-rate": wanted.copy_rate}
    named = [option for option, value in given.items() if value is not None]
    if named and not in_lanes(wanted):
        raise ValueError(f"{', '.join(named)}: memory is moved in lanes only; add --lanes")
    if wanted.copy_rate is not None and 0 < wanted.copy_rate < MICROS:
        raise ValueError(f"--copy-rate is {wanted.copy_rate} bytes per second; it must be 0 or at least 1MB")


def _check_backfill(wanted: Wanted, chosen: Mapping[str, Policy]) -> None:
    """Raise ValueError for --backfill with policies that preempt on whole devices: these would ignore it silently."""
    preemptive = all(policy.preemptive for policy in chosen.values())
    if wanted.backfill is not None and preemptive and not in_lanes(wanted):
        raise ValueError(
            f"--backfill has no effect for {', '.join(chosen)}: preemptive policies start every job that fits anyway"
        )
