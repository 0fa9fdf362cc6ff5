"""``carpool up``: start the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import daemon_arguments, say_note, start_daemon
from carpool.cli.base.options_common import METRICS, POSITIVE, SIZE, Parsed, answer, with_common_options
from carpool.cli.base.presets import PRESETS, Preset, preset
from carpool.cli.render.progress import Progress
from carpool.protocol.client import DaemonClient, DaemonNotRunning
from carpool.protocol.setting_text import absolute_name, parse_setting, setting_text
from carpool.protocol.units import format_size, telemetry_interval


@click.command("up")
@click.option(
    "--user",
    metavar="NAME",
    help="For root: run the daemon as this system user; only a small helper stays root.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="KIND",
    help="Device to share: host:SIZE, as in host:1GiB; a GPU: cuda (GPU 0; all its instances if it is partitioned),"
    " cuda:INDEX, cuda:INDEX:SIZE, or MIG-UUID; repeatable.  Instances (MIG) are experimental.",
)
@click.option(
    "--sharing",
    type=click.Choice(["timeslice", "mps"]),
    help="How a GPU runs jobs side by side: time slices of its driver, or a running MPS server (experimental)."
    "  [default: timeslice]",
)
@click.option("--policy", metavar="NAME", help="Policy for who computes next, as in fair or ./mine.py:Class.")
@click.option(
    "--placement", metavar="NAME", help="Policy for which device a job is placed on, as in magm or ./mine.py:Class."
)
@click.option(
    "--preset",
    "preset_name",
    type=Parsed("name", preset),
    help=f"Policy and settings of a published system: {', '.join(sorted(PRESETS))}.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=Parsed("name=value", parse_setting),
    help="A setting, as in quantum_us=50ms; repeatable.",
)
@click.option(
    "--store",
    type=SIZE,
    help="Host memory for job memory that is moved out of devices.  [default: half of what devices leave]",
)
@click.option(
    "--threads", type=POSITIVE, help="Limit the OpenMP threads of each job.  [default: the job's own setting]"
)
@click.option(
    "--debug-close-lanes",
    is_flag=True,
    help="Debugging on GPUs: close a job's device memory between its turns, so that stray accesses fail (slow).",
)
@click.option(
    "--telemetry-interval",
    type=Parsed("time", telemetry_interval),
    help="Time between measurements of devices, as in 500ms.  [default: 1s]",
)
@click.option(
    "--metrics",
    type=METRICS,
    help="Serve metrics for Prometheus on TCP, too, as on 127.0.0.1:9467; all users of the machine can read there.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Lines of the daemon's log: text, or one JSON object each.  [default: text]",
)
@with_common_options
def command(home: Path, as_json: bool, **chosen: Any) -> int:
    """Start the daemon, if none is running.

    The first `carpool submit` does the same, without options.  Unless --device says otherwise, the devices are those of
    the previous daemon with this home, or else all NVIDIA GPUs, or else one device of host memory: host0, with a
    quarter of the machine's memory.  The host store may take half of what the devices leave.  --policy, --placement
    and --set override --preset.
    """
    with DaemonClient(home) as client:
        started = _start(client, home, _daemon_options(**chosen))
        version, present = client.version(), client.devices()
    sizes = ", ".join(f"{device.id} ({format_size(device.capacity_bytes)})" for device in present)
    said = f"the daemon {'has started' if started else 'is already running'}: pid {version.pid}, {sizes}"
    about = {"pid": version.pid, "home": version.home, "started": started, "devices": present}
    return answer(as_json, about, lambda: [said])


def _start(client: DaemonClient, home: Path, options: list[str]) -> bool:
    """Start the daemon; return False if a daemon runs already.  Raises Problem for options that come too late."""
    try:
        client.connect()
    except DaemonNotRunning:
        with Progress("starting the daemon"):
            note = start_daemon(home, options)
        say_note(note)
        return True
    if options:
        raise Problem(
            Exit.REFUSED,
            "already_running",
            "a daemon is already running, and options take effect only when a daemon starts",
            "stop it first (`carpool down`; jobs keep running), or use `carpool policy` and `carpool set`",
        )
    return False


def _daemon_options(
    devices: tuple[str, ...] = (),
    policy: str | None = None,
    placement: str | None = None,
    preset_name: str | None = None,
    settings: Sequence[tuple[str, int | None]] = (),
    debug_close_lanes: bool = False,
    **others: Any,
) -> list[str]:
    """Return the daemon's command line; ``others``: see `daemon_arguments`."""
    chosen = PRESETS[preset_name] if preset_name else Preset("", "", placement="")
    policies = {"--policy": policy or chosen.policy, "--placement": placement or chosen.placement}
    merged = {**chosen.settings, **dict(settings)}
    pairs = [("--device", device) for device in devices]
    pairs += [(option, absolute_name(name)) for option, name in policies.items() if name]
    pairs += [("--set", setting_text(name, value)) for name, value in merged.items()]
    options = list(chain(*pairs))
    return options + (["--debug-close-lanes"] if debug_close_lanes else []) + daemon_arguments(others)
