"""``carpool ctl``: what an operator sets per device, and how large the host store may become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.cli_error import Problem
from carpool.cli.base.exit_codes import Exit
from carpool.cli.base.options_common import (
    OVERSUBSCRIBE,
    Parsed,
    pass_on_common_options,
    print_json,
    print_lines,
    time_with_unit,
    with_common_options,
)
from carpool.cli.render import formatting
from carpool.protocol.api import DeviceInfo, DeviceRequest, PolicyRequest
from carpool.protocol.client import DaemonClient
from carpool.protocol.units import format_time_us, parse_size

DEFAULT = "default"


class Setter(click.Command):
    """Tells a negative number from an option that does not exist."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        negative = next((text for text in args if re.match(r"-\d", text)), None)
        if negative is not None:
            ctx.fail(f"{negative} is negative: it must be 0 or more.")
        return super().parse_args(ctx, args)


@click.group(
    "ctl", short_help="Show or set time quanta, oversubscription, the host store.", invoke_without_command=True
)
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> int:
    """Show or set time quanta, oversubscription and the budget of the host store.

    Without a command, all of them are shown; a command without a value shows the current one.  Changes apply at once
    and persist across restarts of the daemon.
    """
    if context.invoked_subcommand is not None:
        pass_on_common_options(context, command, home, as_json)
        return 0
    with DaemonClient(home) as client:
        listed = client.device_list()
    if as_json:
        print_json(listed)
    else:
        lines = (
            f"{info.id}: quantum {quantum_words(info)}, oversubscribe {info.oversubscribe}" for info in listed.devices
        )
        print_lines([*lines, formatting.store_line(listed.store)])
    return 0


def quantum(text: str) -> int | str:
    """Microseconds, or "default"."""
    return DEFAULT if text == DEFAULT else time_with_unit(text)


def budget(text: str) -> int | str:
    """Bytes, or "default"."""
    return DEFAULT if text == DEFAULT else parse_size(text)


_DEVICES = click.option(
    "--device", "names", metavar="NAME", multiple=True, help="Only this device; repeatable.  [default: all]"
)


@command.command("quantum", cls=Setter, short_help="Show or set the time quantum.")
@click.argument("time", required=False, type=Parsed("time", quantum))
@_DEVICES
@with_common_options
def quantum_command(home: Path, as_json: bool, time: int | str | None, names: tuple[str, ...]) -> int:
    """Show or set the time quantum: the shortest turn of a job while other jobs wait.

    TIME needs a unit, as in 10s or 50ms.  0s: turns may change at every iteration boundary.  `default`: the value in
    the settings, or else the policy's.  Turns last longer where memory has to be moved, so that moving takes only a
    small share of the time.
    """
    request = None if time is None else DeviceRequest(quantum_us=None if isinstance(time, str) else time)
    infos = _devices(home, names, request)
    return _print(infos, as_json, [f"{info.id}: quantum {quantum_words(info)}" for info in infos])


@command.command("oversubscribe", cls=Setter, short_help="Show or set oversubscription.")
@click.argument("mode", required=False, type=OVERSUBSCRIBE)
@_DEVICES
@with_common_options
def oversubscribe_command(home: Path, as_json: bool, mode: str | None, names: tuple[str, ...]) -> int:
    """Show or set whether jobs may need more memory together than their device has.

    `auto`: memory that does not fit is moved to the host store.  `on`: the same, and jobs of one user never compute
    at the same time.  `off`: jobs that do not fit wait.
    """
    infos = _devices(home, names, None if mode is None else DeviceRequest(oversubscribe=mode))
    return _print(infos, as_json, [f"{info.id}: oversubscribe {info.oversubscribe}" for info in infos])


@command.command("store", cls=Setter, short_help="Show or set the budget of the host store.")
@click.argument("size", required=False, type=Parsed("size", budget))
@with_common_options
def store_command(home: Path, as_json: bool, size: int | str | None) -> int:
    """Show or set the budget of the host store: host memory for job memory that is moved out of devices.

    SIZE is for all devices together; `default`: half of the host memory that the devices leave.
    """
    with DaemonClient(home) as client:
        if size is not None:
            client.set_policy(PolicyRequest(settings={"host_store": None if isinstance(size, str) else size}))
        info = client.device_list().store
    if as_json:
        print_json({"store": info})
    else:
        print_lines([formatting.store_line(info)])
    return 0


def quantum_words(info: DeviceInfo) -> str:
    """A device's time quantum, and where it comes from, as in 50 ms (from the policy)."""
    source = {"device": "set for this device", "settings": "from the settings", "policy": "from the policy"}
    return f"{format_time_us(info.quantum_us)} ({source.get(info.quantum_from, info.quantum_from)})"


def _devices(home: Path, names: Sequence[str], request: DeviceRequest | None) -> list[DeviceInfo]:
    """The chosen devices, changed if there is something to change.  All names are checked before the first change."""
    with DaemonClient(home) as client:
        present = {info.id: info for info in client.devices()}
        for name in names:
            if name not in present:
                known = f"known devices: {', '.join(present)}"
                raise Problem(Exit.NOT_FOUND, "unknown_device", f"there is no device {name!r}", known)
        chosen = [name for name in present if not names or name in names]
        return [client.set_device(name, request) if request else present[name] for name in chosen]


def _print(infos: list[DeviceInfo], as_json: bool, lines: list[str]) -> int:
    if as_json:
        print_json({"devices": infos})
    else:
        print_lines(lines)
    return 0
