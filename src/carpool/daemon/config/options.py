"""The daemon's command line, and default sizes of devices and of the host store."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from carpool.core.model import MIB, DeviceId, Settings, Sharing
from carpool.core.spelling import did_you_mean
from carpool.daemon.config.limits import start_setting
from carpool.daemon.config.settings import changed_settings, check_store
from carpool.daemon.system.errors import StartupError
from carpool.devices.memfd import PAGE, memory_bytes
from carpool.protocol.api import StartSetting
from carpool.protocol.metrics import MetricsAddress, metrics_address
from carpool.protocol.paths import Home, default_home
from carpool.protocol.setting_text import parse_setting
from carpool.protocol.units import exact_size, exact_time, format_size, parse_size, telemetry_interval

#: A GPU's memory comes in pieces of this size.
LEAST = 2 * MIB
#: How names of instances of partitioned GPUs begin.
MIG = "MIG-"
TELEMETRY, LOG_FORMAT = "1s", "text"
#: The variable that leads programs to an MPS server.
MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
SMALLEST_DEFAULT = 256 * MIB
LARGEST_DEFAULT = 16 * 1024 * MIB


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceOption:
    """One ``--device``; ``id`` is the kind with its number, as in host0; mig0 is the first instance that was named."""

    id: str
    kind: str
    capacity: int  # 0: what the GPU has, known once it has been asked
    index: int = 0  # of the GPU, as the driver counts
    sharing: Sharing = Sharing.CONCURRENT
    uuid: str = ""  # of the instance of a partitioned GPU
    bare: bool = False  # no index was given: on a partitioned GPU all its instances are meant

    @property
    def name(self) -> str:
        """The device as on the command line, without the size."""
        return self.uuid or (f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind)

    @property
    def text(self) -> str:
        """The device as on the command line, with the size."""
        return f"{self.name}:{exact_size(self.capacity)}"


@dataclasses.dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The options that the daemon was started with."""

    home: Home
    user: str | None  # the user that a daemon of root becomes; None: it stays root's
    devices: tuple[DeviceOption, ...]  # empty: those of the last daemon, else those that this machine has
    devices_given: bool
    devices_note: str  # for the user who starts the daemon: which devices were chosen
    sharing: Sharing | None  # of the GPUs, whether they were named or found
    settings: Settings
    settings_given: bool  # False: what the journal says, else the defaults
    store: int | None  # budget of the host store; None: as the settings say
    memory: int  # bytes that this machine may use
    threads: int | None
    debug_close_lanes: bool  # jobs on a GPU have no access to its memory between their turns
    telemetry_us: int  # from one measurement of a device to the next
    metrics: MetricsAddress | None  # where Prometheus is served on TCP; None: nowhere
    ready_fd: int | None
    foreground_log: bool
    log_format: str  # "text" | "json"

    @property
    def store_room(self) -> int:
        """Bytes of memory that the devices leave."""
        return max(0, self.memory - sum(device.capacity for device in self.devices if device.kind == "host"))

    @property
    def default_store(self) -> int:
        """Budget of the host store unless one has been set."""
        return default_store(self.store_room)

    def mps_environment(self, devices: Iterable[DeviceId]) -> dict[str, str]:
        """Return the variable by which a job on these devices uses the daemon's MPS server; the job's own prevails.

        On devices shared by other means, jobs must not share the server's faults.
        """
        served = {option.id for option in self.devices if option.sharing is Sharing.MPS}
        return {MPS_PIPE: os.environ[MPS_PIPE]} if MPS_PIPE in os.environ and served.intersection(devices) else {}

    def table(self) -> list[StartSetting]:
        """Return the options as users write them, with where each comes from; the rest are settings."""
        rows = (
            ("device", ", ".join(device.text for device in self.devices), self.devices_given),
            ("sharing", str(self.sharing or Sharing.TIMESLICE), self.sharing is not None),
            ("threads", "none" if self.threads is None else str(self.threads), self.threads is not None),
            ("debug-close-lanes", str(self.debug_close_lanes).lower(), self.debug_close_lanes),
            ("telemetry-interval", exact_time(self.telemetry_us), self.telemetry_us != _telemetry_us(TELEMETRY)),
            ("metrics", str(self.metrics or "none").lower(), self.metrics is not None),
            ("log-format", self.log_format, self.log_format != LOG_FORMAT),
        )
        return [start_setting(name, value, given, "carpool up") for name, value, given in rows]

    @property
    def chosen_settings(self) -> Settings:
        """The settings, with the budget that --store gives."""
        return self.settings if self.store is None else dataclasses.replace(self.settings, host_store=self.store)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        option = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        meant = did_you_mean(option[1], self._option_string_actions) if option else ""
        raise StartupError("bad_option", message, f"{meant}see python -m carpool.daemon --help")


def parse_options(argv: Sequence[str]) -> DaemonOptions:
    """Parse the command line.  Raises StartupError for anything that cannot be carried out on this machine."""
    given = _parser().parse_args(argv)
    if given.threads is not None and given.threads < 1:
        raise StartupError(
            "bad_option", f"--threads {given.threads} is not positive", "give 1 or more, or leave it out"
        )
    memory = memory_bytes()
    return DaemonOptions(
        home=Home(Path(given.home).expanduser().absolute() if given.home else default_home()),
        user=given.user,
        devices=_devices(given.device or [], given.sharing, memory),
        devices_given=bool(given.device),
        devices_note="",
        sharing=None if given.sharing is None else Sharing(given.sharing),
        settings=_settings(given.policy, given.placement, given.set),
        settings_given=given.policy is not None or given.placement is not None or bool(given.set),
        store=None if given.store is None else _store(given.store),
        memory=memory,
        threads=given.threads,
        debug_close_lanes=given.debug_close_lanes,
        telemetry_us=_telemetry_us(given.telemetry_interval),
        metrics=None if given.metrics is None else _metrics(given.metrics),
        ready_fd=given.ready_fd,
        foreground_log=given.foreground_log,
        log_format=given.log_format,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="carpoold", description="The Carpool daemon: shares this machine's devices among jobs.")
    parser.add_argument("--home", metavar="DIR", help="state directory (default: $CARPOOL_HOME or the XDG state dir)")
    parser.add_argument("--user", metavar="NAME", help="for root: run as this user, with a helper that stays root")
    parser.add_argument(
        "--device",
        metavar="KIND",
        action="append",
        help="host:SIZE, cuda[:INDEX][:SIZE] for a GPU (all instances of one that is partitioned, without INDEX), or"
        " MIG-UUID[:SIZE]; repeatable; instances (MIG) are experimental",
    )
    parser.add_argument(
        "--sharing",
        choices=[str(Sharing.TIMESLICE), str(Sharing.MPS)],
        help="what runs jobs side by side on a GPU: its driver, or an MPS server (experimental; default: timeslice)",
    )
    parser.add_argument("--policy", metavar="NAME", help="policy for who computes next (default: fair)")
    parser.add_argument(
        "--placement", metavar="NAME", help="policy for which device a job is placed on (default: magm)"
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="a setting, as in quantum_us=50ms; repeatable"
    )
    parser.add_argument("--store", metavar="SIZE", help="host memory for job memory that is moved out of devices")
    parser.add_argument("--threads", metavar="N", type=int, help="OpenMP threads per job (default: as the job says)")
    parser.add_argument(
        "--debug-close-lanes",
        action="store_true",
        help="close the memory of jobs on GPUs between their turns, so that a stray access is an error (slow)",
    )
    parser.add_argument(
        "--telemetry-interval", metavar="TIME", default=TELEMETRY, help="time between measurements of devices"
    )
    parser.add_argument(
        "--metrics", metavar="ADDRESS:PORT", help="serve metrics for Prometheus on TCP, as on 127.0.0.1:9467"
    )
    parser.add_argument("--ready-fd", metavar="N", type=int, help="write one JSON line here when ready or failed")
    parser.add_argument(
        "--log-format", choices=["text", "json"], default=LOG_FORMAT, help="of the log: lines of text, or JSON objects"
    )
    parser.add_argument("--foreground-log", action="store_true", help="log to standard error instead of daemon.log")
    return parser


def _settings(policy: str | None, placement: str | None, pairs: Sequence[str]) -> Settings:
    try:
        return changed_settings(Settings(), policy, dict(map(parse_setting, pairs)), placement)
    except ValueError as error:
        raise StartupError("bad_setting", str(error)) from None


def _store(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise StartupError("bad_size", f"--store {text}: {error}") from None


def _telemetry_us(text: str) -> int:
    try:
        return telemetry_interval(text)
    except ValueError as error:
        raise StartupError("bad_interval", f"--telemetry-interval {text}: {error}") from None


def _metrics(text: str) -> MetricsAddress:
    try:
        return metrics_address(text)
    except ValueError as error:
        raise StartupError("bad_address", f"--metrics {error}") from None


def check_store_of(options: DaemonOptions) -> None:
    """Check that the host store fits beside the daemon's devices.  Raises StartupError."""
    try:
        check_store(options.chosen_settings.host_store, options.store_room)
    except ValueError as error:
        raise StartupError("store_too_large", str(error), "give a smaller one, or smaller devices") from None


def _devices(texts: Sequence[str], sharing: str | None, memory: int) -> tuple[DeviceOption, ...]:
    devices: list[DeviceOption] = []
    for text in texts:
        devices.append(_device(text, devices, Sharing(sharing or Sharing.TIMESLICE), memory))
    check_devices(devices, memory)
    if devices and sharing is not None:
        check_sharing(devices, Sharing(sharing))
    return tuple(devices)


def _device(text: str, before: Sequence[DeviceOption], sharing: Sharing, memory: int) -> DeviceOption:
    """Read a ``--device``.  ``before``: the devices that were named before.  Raises StartupError."""
    kind, _, rest = text.partition(":")
    if text.endswith(":"):
        raise StartupError("bad_size", f"--device {text}: nothing follows the last colon", "leave the colon out")
    if kind == "host":
        number = sum(device.kind == "host" for device in before)
        return DeviceOption(f"host{number}", kind, _capacity(text, rest, memory))
    if kind.startswith(MIG):
        return _instance(text, kind, rest, sum(bool(device.uuid) for device in before), sharing)
    if kind == "cuda":
        return _gpu(text, rest, sharing)
    raise StartupError(
        "unknown_device_kind",
        f"--device {text}: unknown kind {kind!r}",
        f"{did_you_mean(kind, ('host', 'cuda'))}known kinds: host:SIZE, cuda[:INDEX][:SIZE], MIG-UUID[:SIZE]",
    )


def check_sharing(devices: Sequence[DeviceOption], sharing: Sharing) -> None:
    """Check that there is a GPU to be shared in this way.  Raises StartupError."""
    if not any(device.kind == "cuda" for device in devices):
        raise StartupError(
            "no_gpu_given",
            f"--sharing {sharing} is for GPUs, and there is none among the devices",
            "name one: --device cuda",
        )


def _gpu(text: str, rest: str, sharing: Sharing) -> DeviceOption:
    """Parse ``cuda``, ``cuda:1``, ``cuda:1:8GiB`` or ``cuda:8GiB``: a number without a unit is an index."""
    first, _, second = rest.partition(":")
    if first and not first.isdecimal():
        first, second = "", rest
    index = int(first or 0)
    return DeviceOption(f"cuda{index}", "cuda", _share(text, second), index, sharing, bare=not first)


def _instance(text: str, uuid: str, size: str, number: int, sharing: Sharing) -> DeviceOption:
    """Parse ``MIG-...`` or ``MIG-...:8GiB``: an instance of a partitioned GPU."""
    if len(uuid) == len(MIG):
        hint = "`nvidia-smi -L` and `carpool doctor` name the instances"
        raise StartupError("bad_device", f"--device {text}: the name of the instance is incomplete", hint)
    return DeviceOption(f"mig{number}", "cuda", _share(text, size), 0, sharing, uuid)


def _share(text: str, size: str) -> int:
    """Return the bytes of a GPU that are shared; 0: as many as it has."""
    try:
        capacity = parse_size(size) if size else 0
    except ValueError as error:
        raise StartupError("bad_size", f"--device {text}: {error}", "for example --device cuda:0:8GiB") from None
    if size and capacity < LEAST:
        hint = "leave the size out to share all of it, or give more, as in --device cuda:0:8GiB"
        raise StartupError("bad_size", f"--device {text}: a GPU shares at least {format_size(LEAST)}", hint)
    return capacity // LEAST * LEAST


def check_devices(devices: Sequence[DeviceOption], memory: int) -> None:
    """Check that no device is given twice, and that memory suffices for the host devices.  Raises StartupError."""
    ids = [device.id for device in devices]
    for device in devices:
        if device.uuid and sum(other.uuid == device.uuid for other in devices) > 1:
            raise StartupError("same_device", f"{device.uuid} is given twice", "name each instance once")
        if ids.count(device.id) > 1:
            raise StartupError(
                "same_device", f"{device.id} is given twice", "name each GPU once: --device cuda:0 --device cuda:1"
            )
    total = sum(device.capacity for device in devices if device.kind == "host")
    if total > memory:
        raise StartupError(
            "device_too_large",
            f"the devices need {format_size(total)}, but this machine has {format_size(memory)} of memory",
            "give smaller sizes: --device host:SIZE",
        )


def _capacity(text: str, size: str, memory: int) -> int:
    try:
        capacity = parse_size(size) if size else default_capacity(memory)
    except ValueError as error:
        raise StartupError("bad_size", f"--device {text}: {error}") from None
    if capacity < PAGE:
        raise StartupError("bad_size", f"--device {text}: a device needs at least one page of {PAGE} bytes")
    return capacity // PAGE * PAGE


def default_capacity(memory: int) -> int:
    """Return the default size of a device: a quarter of the memory, whole MiB, between 256 MiB and 16 GiB."""
    return max(SMALLEST_DEFAULT, min(LARGEST_DEFAULT, memory // 4)) // MIB * MIB


def gpu_capacity(memory: int) -> int:
    """Return how much of a GPU's memory is shared; contexts and what libraries take beside Carpool cannot be moved."""
    reserve = max(memory // 32, context_size(memory))
    return (memory - reserve) // (2 * MIB) * (2 * MIB)


def context_size(memory: int) -> int:
    """Return the bytes that a process takes of a GPU by using it at all, until contexts have been measured."""
    return min(memory // 8, 512 * MIB)


def default_store(room: int) -> int:
    """Return the default host store: half of what the devices leave, in whole MiB; the rest is for the jobs."""
    return room // 2 // MIB * MIB
