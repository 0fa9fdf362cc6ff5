"""``carpool set``: show or change settings, of the daemon or of single devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import Parsed, answer, check_device, plural, with_common_options
from carpool.cli.render import formatting
from carpool.core.model import NUMBER_SETTINGS, Oversubscribe, Settings
from carpool.protocol.api import DeviceInfo, DeviceRequest, PolicyRequest, StartSetting, StoreInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped
from carpool.protocol.setting_text import format_setting, parse_setting, shown_name

QUANTUM, OVERSUBSCRIBE, RESERVE = "quantum_us", "oversubscribe", "reserve"
#: Settings that only devices have; the quantum is also a setting of the daemon.
OF_DEVICES = {OVERSUBSCRIBE, RESERVE}
#: Settings that are shown without --all, beside those that differ from their defaults.
USUAL = (
    QUANTUM,
    "host_store",
    "max_jobs",
    "kill_after_us",
    "default_time_us",
    "max_time_us",
    "user_running",
    "user_devices",
)
_DEFAULTS = {each.name: each.default for each in fields(Settings) if each.name in NUMBER_SETTINGS}
_FIELDS = {RESERVE: "reserve_bytes"}  # names that differ in the API
Changes = dict[str, Any]


class SettingList(msgspec.Struct, frozen=True):
    """Settings, devices and host store in force, as ``--json`` prints them."""

    settings: dict[str, int | None]
    devices: list[DeviceInfo]
    store: StoreInfo
    start: list[StartSetting] = []


def assignment(text: str) -> tuple[str, int | str | None]:
    """Parse one ``NAME=VALUE``; `oversubscribe`, which only devices have, is a word.  Raises ValueError, for people."""
    name, equals, value = text.partition("=")
    if name.strip() != OVERSUBSCRIBE or not equals:
        return parse_setting(text)
    modes = [mode.value for mode in Oversubscribe]
    if value.strip() not in modes:
        raise ValueError(f"{OVERSUBSCRIBE} is {value!r}; it must be one of {', '.join(modes)}")
    return OVERSUBSCRIBE, value.strip()


@click.command("set", short_help="Show or change settings, also of single devices.")
@click.argument("assignments", nargs=-1, metavar="[NAME=VALUE]...", type=Parsed("name=value", assignment))
@click.option(
    "--device",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this device: quantum, oversubscribe and reserve may differ between devices; repeatable.",
)
@click.option(
    "--all", "-a", "everything", is_flag=True, help="Show all settings, limits and options, and their origin."
)
@with_common_options
def command(
    home: Path,
    as_json: bool,
    assignments: tuple[tuple[str, int | str | None], ...],
    names: tuple[str, ...],
    everything: bool,
) -> int:
    """Show or change the settings of the running daemon.

    Without NAME=VALUE, the settings that matter most are shown, and those that differ from their defaults.  Times and
    sizes have units, as in quantum=50ms or host_store=16GiB; `default` resets a value.  Changes apply at once and
    persist across restarts of the daemon.  Examples:

    \b
        carpool set quantum=100ms max_jobs=4
        carpool set oversubscribe=off --device host0
        carpool set reserve=2GiB --device cuda0
        carpool set user_running=4 user_running.anna=8 group.vision=2

    `carpool limits` shows what such limits mean for a user.
    """
    if everything and (assignments or names):
        raise click.UsageError("--all shows all settings: leave out the names.")
    changes = _once(assignments)
    with DaemonClient(home) as client:
        chosen = _devices(client, names)
        _change(client, changes, names, chosen)
        found = _in_force(client, names)
    return answer(as_json, found, lambda: _lines(found, _shown(found, changes, names), changes, names, everything))


def _once(assignments: Sequence[tuple[str, int | str | None]]) -> Changes:
    changes = dict(assignments)
    if len(changes) < len(assignments):
        raise Problem(Exit.USAGE, "setting_twice", "a setting is given twice", "give each setting one value")
    return changes


def _devices(client: DaemonClient, names: Sequence[str]) -> list[str]:
    """Return the devices that are named, or all devices.  Raises Problem."""
    present = [info.id for info in client.devices()]
    for name in names:
        check_device(name, present)
    return list(dict.fromkeys(names)) or present


def _change(client: DaemonClient, changes: Changes, names: Sequence[str], chosen: Sequence[str]) -> None:
    """Change settings, after all names have been checked.  Raises Problem."""
    of_devices = {QUANTUM, *OF_DEVICES} if names else OF_DEVICES
    common = {name: value for name, value in changes.items() if name not in of_devices}
    _check_common(names, common)
    if common:
        client.set_policy(PolicyRequest(settings=common))
    own = {_FIELDS.get(name, name): value for name, value in changes.items() if name in of_devices}
    for device in chosen if own else ():
        client.set_device(device, DeviceRequest(**own))


def _check_common(names: Sequence[str], common: Changes) -> None:
    if names and common:
        text = f"{', '.join(common)}: not a setting of a device"
        hint = f"{shown_name(QUANTUM)}, {OVERSUBSCRIBE} and {RESERVE} are; leave --device out"
        raise Problem(Exit.USAGE, "not_per_device", text, hint)


def _in_force(client: DaemonClient, names: Sequence[str]) -> SettingList:
    listed = client.device_list()
    devices = [info for info in listed.devices if not names or info.id in names]
    policy = client.policy()
    return SettingList(policy.settings, devices, listed.store, policy.start)


def _shown(found: SettingList, changes: Changes, names: Sequence[str]) -> dict[str, int | None]:
    """Return the settings to show: those that were changed; else those that matter most."""
    if names:
        return {}
    if not changes:
        return {name: value for name, value in found.settings.items() if _matters(name, value)}
    gone = {name: None for name, value in changes.items() if "." in name and value is None}  # limits with a name
    return {name: value for name, value in found.settings.items() if name in changes} | gone


def _matters(name: str, value: int | None) -> bool:
    return name in USUAL or value != _DEFAULTS.get(name)


def _lines(
    found: SettingList, shown: dict[str, int | None], changes: Changes, names: Sequence[str], everything: bool
) -> list[str]:
    about_devices = names or not changes or changes.keys() & {QUANTUM, *OF_DEVICES}
    devices = [_device_line(info) for info in found.devices] if about_devices else []
    store = [formatting.store_line(found.store)] if everything or "host_store" in shown else []
    more = 0 if changes or names else len(found.settings) - len(shown)
    return [*(_all_lines(found) if everything else _some_lines(shown, more)), *devices, *store]


def _some_lines(shown: dict[str, int | None], more: int) -> list[str]:
    width = max((len(shown_name(name)) for name in shown), default=0)
    settings = [f"{shown_name(name):<{width}}  {format_setting(name, value)}" for name, value in shown.items()]
    return [*settings, f"and {plural(more, 'setting')} more: carpool set --all"] if more else settings


def _all_lines(found: SettingList) -> list[str]:
    """Return a line for each setting, limit and option: its value, and where that comes from unless it is a default."""
    rows = [
        (shown_name(name), format_setting(name, value), _source(name, value)) for name, value in found.settings.items()
    ]
    rows += [(each.name, escaped(each.value), each.source) for each in found.start]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {value}{'' if source == 'default' else f' ({source})'}" for name, value, source in rows]


def _source(name: str, value: int | None) -> str:
    return "default" if value == _DEFAULTS.get(name) else "carpool set"


def _device_line(info: DeviceInfo) -> str:
    quantum = f"{shown_name(QUANTUM)} {quantum_words(info)}"
    return f"{info.id}: {quantum}, {OVERSUBSCRIBE} {info.oversubscribe}, {reserve_words(info)}"


def reserve_words(info: DeviceInfo) -> str:
    """Return how much of a device is reserved for other programs, as in reserve 2GiB."""
    return f"{RESERVE} {format_setting(RESERVE, info.reserve_bytes)}"


def quantum_words(info: DeviceInfo) -> str:
    """Return a device's time quantum, and where it comes from, as in 50ms (from the policy)."""
    source = {"device": "set for this device", "settings": "from the settings", "policy": "from the policy"}
    return f"{format_setting(QUANTUM, info.quantum_us)} ({source.get(info.quantum_from, info.quantum_from)})"
