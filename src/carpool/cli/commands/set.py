"""``carpool set``: shows or changes settings, of the daemon or of single devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.device_names import check_device
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import Parsed, print_json, print_lines, with_common_options
from carpool.cli.render import formatting
from carpool.core.model import Oversubscribe
from carpool.protocol.api import DeviceInfo, DeviceRequest, PolicyRequest, StoreInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.setting_text import format_setting, parse_setting

QUANTUM, OVERSUBSCRIBE, RESERVE = "quantum_us", "oversubscribe", "reserve"
#: Only devices have these; the quantum is also a setting of all.
OF_DEVICES = {OVERSUBSCRIBE, RESERVE}
_FIELDS = {RESERVE: "reserve_bytes"}  # where the API calls it otherwise
Changes = dict[str, Any]


class SettingList(msgspec.Struct, frozen=True):
    """What is in force, with ``--json``."""

    settings: dict[str, int | None]
    devices: list[DeviceInfo]
    store: StoreInfo


def assignment(text: str) -> tuple[str, int | str | None]:
    """One ``NAME=VALUE``; `oversubscribe`, which only devices have, is a word.  Raises ValueError, for people."""
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
    help="Only this device: quantum_us, oversubscribe and reserve may differ between devices; repeatable.",
)
@with_common_options
def command(
    home: Path, as_json: bool, assignments: tuple[tuple[str, int | str | None], ...], names: tuple[str, ...]
) -> int:
    """Show or change the settings of the running daemon.

    Without NAME=VALUE, all settings are shown.  Times and sizes have units, as in quantum_us=50ms or host_store=16GiB;
    `default` takes a value back.  Changes apply at once and persist across restarts of the daemon.  Examples:

    \b
        carpool set quantum_us=100ms max_jobs=4
        carpool set oversubscribe=off --device host0
        carpool set reserve=2GiB --device cuda0
        carpool set user_running=4 user_running.anna=8 group.vision=2

    `carpool limits` shows what such limits mean for a user.
    """
    changes = _once(assignments)
    with DaemonClient(home) as client:
        chosen = _devices(client, names)
        _change(client, changes, names, chosen)
        found = _in_force(client, names)
    if as_json:
        print_json(found)
    else:
        print_lines(_lines(found, changes, names))
    return 0


def _once(assignments: Sequence[tuple[str, int | str | None]]) -> Changes:
    changes = dict(assignments)
    if len(changes) < len(assignments):
        raise Problem(Exit.USAGE, "setting_twice", "a setting is given twice", "give each setting one value")
    return changes


def _devices(client: DaemonClient, names: Sequence[str]) -> list[str]:
    """Those that are named, or all.  Raises Problem."""
    present = [info.id for info in client.devices()]
    for name in names:
        check_device(name, present)
    return list(dict.fromkeys(names)) or present


def _change(client: DaemonClient, changes: Changes, names: Sequence[str], chosen: Sequence[str]) -> None:
    """All names are checked before the first change.  Raises Problem."""
    of_devices = {QUANTUM, *OF_DEVICES} if names else OF_DEVICES
    common = {name: value for name, value in changes.items() if name not in of_devices}
    if names and common:
        text = f"{', '.join(common)}: not a setting of a device"
        raise Problem(
            Exit.USAGE, "not_per_device", text, f"{QUANTUM}, {OVERSUBSCRIBE} and {RESERVE} are; leave --device out"
        )
    if common:
        client.set_policy(PolicyRequest(settings=common))
    own = {_FIELDS.get(name, name): value for name, value in changes.items() if name in of_devices}
    for device in chosen if own else ():
        client.set_device(device, DeviceRequest(**own))


def _in_force(client: DaemonClient, names: Sequence[str]) -> SettingList:
    listed = client.device_list()
    devices = [info for info in listed.devices if not names or info.id in names]
    return SettingList(client.policy().settings, devices, listed.store)


def _lines(found: SettingList, changes: Changes, names: Sequence[str]) -> list[str]:
    """What was changed, or all."""
    shown = {} if names else {name: value for name, value in found.settings.items() if not changes or name in changes}
    if not names:  # a limit with a name is gone when it is taken back
        shown |= {name: None for name, value in changes.items() if "." in name and value is None}
    width = max(map(len, shown), default=0)
    settings = [f"{name:<{width}}  {format_setting(name, value)}" for name, value in shown.items()]
    devices = [
        f"{info.id}: {QUANTUM} {quantum_words(info)}, {OVERSUBSCRIBE} {info.oversubscribe}, {reserve_words(info)}"
        for info in found.devices
    ]
    about_devices = names or not changes or changes.keys() & {QUANTUM, *OF_DEVICES}
    store = [formatting.store_line(found.store)] if "host_store" in shown else []
    return [*settings, *(devices if about_devices else ()), *store]


def reserve_words(info: DeviceInfo) -> str:
    """What is kept of a device for other programs, as in reserve 2GiB."""
    return f"{RESERVE} {format_setting(RESERVE, info.reserve_bytes)}"


def quantum_words(info: DeviceInfo) -> str:
    """A device's time quantum, and where it comes from, as in 50ms (from the policy)."""
    source = {"device": "set for this device", "settings": "from the settings", "policy": "from the policy"}
    return f"{format_setting(QUANTUM, info.quantum_us)} ({source.get(info.quantum_from, info.quantum_from)})"
