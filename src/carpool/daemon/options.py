"""The daemon's command line."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from carpool.core.model import MIB, Settings
from carpool.daemon.errors import StartupError
from carpool.daemon.settings import changed_settings
from carpool.protocol.paths import Home, default_home
from carpool.protocol.sizes import format_size, parse_size

SMALLEST_DEFAULT = 256 * MIB
LARGEST_DEFAULT = 16 * 1024 * MIB
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceOption:
    """One ``--device kind:size``; ``id`` is the kind with its number, as in host0."""

    id: str
    kind: str
    capacity: int


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    home: Home
    devices: tuple[DeviceOption, ...]
    devices_given: bool  # False: the default one
    settings: Settings
    settings_given: bool  # False: what the journal says, else the defaults
    threads: int | None
    ready_fd: int | None
    foreground_log: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise StartupError("bad_option", message, "see python -m carpool.daemon --help")


def parse_options(argv: Sequence[str]) -> Options:
    """Raises StartupError for anything that cannot be carried out on this machine."""
    given = _parser().parse_args(argv)
    if given.threads is not None and given.threads < 1:
        raise StartupError(
            "bad_option", f"--threads {given.threads} is not positive", "give 1 or more, or leave it out"
        )
    return Options(
        home=Home(Path(given.home).expanduser().absolute() if given.home else default_home()),
        devices=_devices(given.device or []),
        devices_given=bool(given.device),
        settings=_settings(given.policy, given.setting),
        settings_given=given.policy is not None or bool(given.setting),
        threads=given.threads,
        ready_fd=given.ready_fd,
        foreground_log=given.foreground_log,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="carpoold", description="The Carpool daemon: shares this machine's devices among jobs.")
    parser.add_argument("--home", metavar="DIR", help="state directory (default: $CARPOOL_HOME or the XDG state dir)")
    parser.add_argument("--device", metavar="host:SIZE", action="append", help="a device and its size; repeatable")
    parser.add_argument("--policy", metavar="NAME", help="who computes next (default: fair)")
    parser.add_argument("--setting", metavar="NAME=VALUE", action="append", default=[], help="a setting; repeatable")
    parser.add_argument("--threads", metavar="N", type=int, help="OpenMP threads per job (default: as the job says)")
    parser.add_argument("--ready-fd", metavar="N", type=int, help="write one JSON line here when ready or failed")
    parser.add_argument("--foreground-log", action="store_true", help="log to standard error instead of daemon.log")
    return parser


def _settings(policy: str | None, pairs: Sequence[str]) -> Settings:
    values: dict[str, int | None] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            values[name] = None if text == "none" else int(text)
        except ValueError:
            equals = ""
        if not equals:
            raise StartupError(
                "bad_option", f"--setting {pair} is not NAME=NUMBER", "for example --setting quantum_us=50000"
            )
    try:
        return changed_settings(Settings(), policy, values)
    except ValueError as error:
        raise StartupError("bad_setting", str(error)) from None


def _devices(texts: Sequence[str]) -> tuple[DeviceOption, ...]:
    memory = _memory_bytes()
    if not texts:
        return (DeviceOption("host0", "host", default_capacity(memory)),)
    devices: list[DeviceOption] = []
    for text in texts:
        kind, _, size = text.partition(":")
        if kind != "host":
            raise StartupError(
                "unknown_device_kind", f"--device {text}: unknown kind {kind!r}", "known kinds: host:SIZE"
            )
        devices.append(DeviceOption(f"host{len(devices)}", kind, _capacity(text, size, memory)))
    total = sum(device.capacity for device in devices)
    if total > memory:
        raise StartupError(
            "device_too_large",
            f"the devices need {format_size(total)}, but this machine has {format_size(memory)} of memory",
            "give smaller sizes: --device host:SIZE",
        )
    return tuple(devices)


def _capacity(text: str, size: str, memory: int) -> int:
    try:
        capacity = parse_size(size) if size else default_capacity(memory)
    except ValueError as error:
        raise StartupError("bad_size", f"--device {text}: {error}") from None
    if capacity < PAGE:
        raise StartupError("bad_size", f"--device {text}: a device needs at least one page of {PAGE} bytes")
    return capacity // PAGE * PAGE


def default_capacity(memory: int) -> int:
    """A quarter of the memory, whole MiB, between 256 MiB and 16 GiB."""
    return max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, memory // 4)) // MIB * MIB


def _memory_bytes() -> int:
    """RAM that this process may use: MemTotal, or the limit of its control group if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))
