"""``carpool model``: register, list and remove models for inference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.options_common import (
    OWNER,
    POSITIVE,
    TIME_US,
    NameOf,
    Parsed,
    answer,
    pass_on_common_options,
    plural,
    with_common_options,
)
from carpool.cli.render import formatting
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import stdout_output
from carpool.cli.request.model_registration import registration
from carpool.protocol.client import DaemonClient
from carpool.protocol.models import (
    DEFAULT_BATCH,
    DEFAULT_PRIORITY,
    SUFFIXES,
    ModelFigures,
    ModelInfo,
    ModelList,
    check_factory,
    check_name,
)
from carpool.protocol.units import format_size, format_time_us, parse_time_us

COLUMNS = (
    TableColumn("NAME"),
    TableColumn("OWNER"),
    TableColumn("DEADLINE"),
    TableColumn("BATCH", gives_way=2),
    TableColumn("DELAY", gives_way=3),
    TableColumn("PRIORITY", gives_way=1),
    TableColumn("FACTORY", least=12),
    TableColumn("WEIGHTS", least=12),
    TableColumn("ON", gives_way=4),
    TableColumn("REQ/S", right=True, gives_way=5),
    TableColumn("P50", right=True, gives_way=7),
    TableColumn("P99", right=True, gives_way=6),
    TableColumn("MISSED", right=True, gives_way=8),
    TableColumn("STATE", prose=True),
)


def some_time(text: str) -> int:
    """Parse a time of at least one microsecond, in microseconds.  Raises ValueError, for people."""
    us = parse_time_us(text)
    if us < 1:
        raise ValueError(f"{text!r} is too short: it must be 1us or more")
    return us


_PRESENT = click.argument("name", type=NameOf(lambda client: (each.name for each in client.models())))


@click.group("model", short_help="Register models for inference, list and remove them.", invoke_without_command=True)
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> int:
    """Register, list and remove models for inference; without a command, list them.

    Registered models persist across restarts of the daemon.  `carpool serve` answers requests with them.
    """
    if context.invoked_subcommand is not None:
        pass_on_common_options(context, command.commands)
        return 0
    return _list(home, as_json)


@command.command("add", short_help="Register a model.")
@click.argument("name", type=Parsed("name", check_name))
@click.option(
    "--factory",
    required=True,
    type=Parsed("module:function", check_factory),
    help="Function that returns the model, a torch.nn.Module.",
)
@click.option(
    "--weights",
    metavar="FILE",
    help=f"File of weights: {' or '.join(SUFFIXES)}.  [default: as the factory leaves them]",
)
@click.option(
    "--deadline",
    "deadline_us",
    type=Parsed("time", some_time),
    help="Longest time from the arrival of a request to its answer, as in 50ms.  [default: no limit]",
)
@click.option("--max-batch", type=POSITIVE, default=DEFAULT_BATCH, show_default=True, help="Largest batch, in rows.")
@click.option(
    "--max-delay",
    "max_delay_us",
    type=TIME_US,
    default="0s",
    show_default=True,
    help="Longest time that a request waits for its batch to fill, as in 2ms.",
)
@click.option(
    "--priority",
    type=POSITIVE,
    default=DEFAULT_PRIORITY,
    show_default=True,
    help="Rank among models, with `carpool serve --order priority`; larger is first.",
)
@click.option(
    "--chdir",
    "-D",
    "directory",
    metavar="DIR",
    help="Working directory; the factory is imported from there.  [default: the current one]",
)
@click.option("--replace", is_flag=True, help="Replace the model of this name, if there is one.")
@with_common_options
def add(home: Path, as_json: bool, name: str, replace: bool, **options: Any) -> int:
    """Register a model as NAME.

    Its workers run in this directory, with this environment and the active virtual environment.  Neither the factory
    nor the weights are loaded now; `carpool serve` reports whether they fit together.  Starts the daemon if none is
    running.  Example:

    \b
        carpool model add resnet --factory shop.models:resnet \\
            --weights resnet.safetensors --deadline 50ms
    """
    from carpool.cli.base.daemon_start import connected

    request = registration(**options)
    with connected(home) as client:
        info = client.add_model(name, request, replace=replace)
    return answer(as_json, info, lambda: [f"model {info.name} registered"])


@command.command("ls", short_help="List the models.")
@with_common_options
def ls(home: Path, as_json: bool) -> int:
    """List your models (for administrators: the models of all users).

    STATE: the model's state in the `carpool serve` of its owner: preparing, ready, or unavailable and why; not served
    while no server serves the model.
    """
    return _list(home, as_json)


@command.command("show", short_help="Show everything about a model.")
@_PRESENT
@OWNER
@with_common_options
def show(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """Show everything about a model except its environment variables."""
    with DaemonClient(home) as client:
        info = client.model(name, owner=owner)
    return answer(as_json, info, lambda: stdout_output().facts(f"model {info.name}", _facts(info)))


@command.command("rm", short_help="Remove a model.")
@_PRESENT
@OWNER
@with_common_options
def rm(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """Remove a model.  Its files are kept."""
    with DaemonClient(home) as client:
        info = client.remove_model(name, owner=owner)
    return answer(as_json, info, lambda: [f"model {info.name} removed"])


def _list(home: Path, as_json: bool) -> int:
    with DaemonClient(home) as client:
        models = client.models()
    return answer(as_json, ModelList(models), lambda: _lines(models))


def _lines(models: Sequence[ModelInfo]) -> list[str]:
    if not models:
        return ["no models yet: carpool model add NAME --factory module:function"]
    return stdout_output().table(COLUMNS, [*map(_row, models)])


def _row(info: ModelInfo) -> tuple[str, ...]:
    return (
        info.name,
        formatting.owner(info.owner),
        _deadline(info) or "-",
        str(info.max_batch),
        format_time_us(info.max_delay_us),
        str(info.priority),
        info.factory,
        info.weights or "-",
        _on_devices(info) or "-",
        *_figures(info.figures),
        _state(info),
    )


def _figures(figures: ModelFigures | None) -> tuple[str, str, str, str]:
    if figures is None:
        return ("-", "-", "-", "-")
    p50, p99 = ("-" if us is None else f"{us / 1000:,.1f} ms" for us in (figures.p50_us, figures.p99_us))
    return (f"{figures.requests_per_s:.1f}", p50, p99, str(figures.missed))


def _on_devices(info: ModelInfo) -> str:
    return ", ".join(f"{device} ({format_size(size)})" for device, size in sorted(info.on_devices.items()))


def _last_minute(info: ModelInfo) -> list[tuple[str, str]]:
    """Return the facts that a front has reported of the last minute; none if no front has."""
    if info.figures is None:
        return []
    per_s, p50, p99, missed = _figures(info.figures)
    return [
        ("on devices", _on_devices(info) or "none"),
        ("last minute", f"{per_s} requests/s; median {p50}, 99 % within {p99}; {missed} deadlines missed"),
        ("copied", f"{format_size(info.figures.copied_bytes)} of weights in the last minute"),
        ("waiting", plural(info.figures.waiting, "request")),
    ]


def _facts(info: ModelInfo) -> list[tuple[str, str]]:
    return [
        ("state", _state(info)),
        *_last_minute(info),
        ("owner", f"{formatting.owner(info.owner)} (uid {info.owner})"),
        ("factory", info.factory),
        ("weights", info.weights or "as the factory leaves them"),
        ("deadline", _deadline(info) or "none"),
        ("largest batch", str(info.max_batch)),
        ("longest delay", format_time_us(info.max_delay_us)),
        ("priority", str(info.priority)),
        ("interpreter", info.python),
        ("directory", info.cwd),
        ("environment", plural(info.variables, "variable")),
        ("registered", formatting.dated(info.added_us)),
    ]


def _state(info: ModelInfo) -> str:
    return f"{info.state}: {info.reason}" if info.reason else info.state


def _deadline(info: ModelInfo) -> str:
    return "" if info.deadline_us is None else format_time_us(info.deadline_us)
