"""``carpool engine``: the engines that `carpool serve` starts on demand: added, listed, started, ended."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import (
    OWNER,
    POSITIVE,
    NameOf,
    Parsed,
    answer,
    pass_on_common_options,
    with_common_options,
)
from carpool.cli.render import formatting
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import stdout_output
from carpool.protocol.client import DaemonClient
from carpool.protocol.engines import LOADING_OPTIONS, OFF, READY, STARTING, EngineInfo, EngineList, Wish
from carpool.protocol.models import check_name
from carpool.protocol.paths import engines_file, expanded
from carpool.protocol.units import format_size

LOOK_S = 0.2
REPEAT_LOOKS = 10  # a front hears wishes every second
COLUMNS = (
    TableColumn("NAME"),
    TableColumn("OWNER", gives_way=3),
    TableColumn("MODELS", least=12),
    TableColumn("STATE"),
    TableColumn("DEVICE", gives_way=2),
    TableColumn("MEMORY", right=True, gives_way=2),
    TableColumn("REQUESTS", right=True),
    TableColumn("TTFT", right=True, gives_way=4),
    TableColumn("TOKENS/S", right=True, gives_way=5),
    TableColumn("JOB", right=True, gives_way=6),
    TableColumn("URL", gives_way=7),
)


_NAME = click.argument("name", type=NameOf(lambda client: (each.name for each in client.engines())))
_FILE = click.option(
    "--file", "file", type=click.Path(path_type=Path), help="File of engines.  [default: the one of your configuration]"
)


@click.group("engine", short_help="Add servers of language models, list and control them.", invoke_without_command=True)
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> int:
    """Add servers of language models (engines), list and control them; without a command, list them.

    `carpool serve` starts an engine when one of its models is asked, and passes requests on to it.
    """
    if context.invoked_subcommand is not None:
        pass_on_common_options(context, command.commands)
        return 0
    return _list(home, as_json)


@command.command("add", short_help="Add an engine.")
@click.argument("name", type=Parsed("name", check_name))
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]...")
@click.option("--model", "models", multiple=True, metavar="NAME", help="Name that clients use; repeatable.")
@click.option("--as", "known_as", metavar="NAME", help="Name that the engine itself knows the model by.")
@click.option("--health", metavar="PATH", help="Path that answers 200 once the engine is ready.  [default: /health]")
@click.option("--start-timeout", metavar="TIME", help="Longest time until it is ready.  [default: 10m]")
@click.option("--ttl", metavar="TIME", help="Time without requests after which it ends, or never.  [default: 15m]")
@click.option(
    "--pin",
    is_flag=True,
    help="Keep its process without requests, and its memory on the device.  Needs administrator rights.",
)
@click.option("--preload", is_flag=True, help="Start it with the server, not with its first request.")
@click.option("--keys", metavar="FILE", help="File of keys; who has one may use this engine.")
@click.option("--device", help="Run it on this device, or one of these (commas).")
@click.option("--priority", type=POSITIVE, help="Rank among services; larger is first.  [default: 100]")
@click.option("--max-in-flight", type=POSITIVE, help="Most requests at once; more are refused.  [default: 64]")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Variable of its process; repeatable.")
@click.option("--replace", is_flag=True, help="Replace the engine of this name, if there is one.")
@_FILE
@with_common_options
def add(home: Path, as_json: bool, name: str, words: tuple[str, ...], file: Path | None, **options: Any) -> int:
    """Add an engine as NAME: a command that serves a model by HTTP, with {port} where its port is to be.

    The engine is written into a file, which a running `carpool serve` notices.  Example:

    \b
        carpool engine add llama --ttl 1h -- \\
            llama-server -m llama.gguf --port {port}
    """
    from carpool.cli.request.engine_file import add_engine

    replace, path = options.pop("replace"), file or engines_file()
    spec = add_engine(path, name, _keys(list(words), options), replace=replace)
    return answer(as_json, spec, lambda: [f"engine {name} added to {path}"])


@command.command("rm", short_help="Remove an engine.")
@_NAME
@_FILE
@with_common_options
def rm(home: Path, as_json: bool, name: str, file: Path | None) -> int:
    """Remove an engine from the file; a running `carpool serve` ends its process after its requests."""
    from carpool.cli.request.engine_file import remove_engine

    path = file or engines_file()
    remove_engine(path, name)
    return answer(as_json, {"name": name, "file": str(path)}, lambda: [f"engine {name} removed from {path}"])


@command.command("ls", short_help="List the engines.")
@with_common_options
def ls(home: Path, as_json: bool) -> int:
    """List the engines that `carpool serve` serves, of all users.

    STATE: off, starting, ready, ending, or moved out (ready, but its memory is in the host store).  TTFT: median time
    to the first token; TOKENS/S: all its answers; both of the last minute.
    """
    return _list(home, as_json)


@command.command("show", short_help="Show everything about an engine.")
@_NAME
@OWNER
@with_common_options
def show(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """Show everything about an engine."""
    with DaemonClient(home) as client:
        info = _found(client, name, owner)
    return answer(as_json, info, lambda: stdout_output().facts(f"engine {info.name}", _facts(info)))


@command.command("start", short_help="Start an engine.")
@_NAME
@OWNER
@with_common_options
def start(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """Start an engine before its first request, and wait until it is ready."""
    return _wish(home, as_json, name, "start", owner)


@command.command("stop", short_help="End the process of an engine.")
@_NAME
@OWNER
@with_common_options
def stop(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """End the process of an engine after its requests, and wait for it; the next request starts it again."""
    return _wish(home, as_json, name, "stop", owner)


@command.command("sleep", short_help="Move the memory of an engine out of its device.")
@_NAME
@OWNER
@with_common_options
def sleep(home: Path, as_json: bool, name: str, owner: int | None) -> int:
    """Move the memory of an engine without requests to the host store; the next request moves it back."""
    with DaemonClient(home) as client:
        info = client.wish_engine(name, "sleep", owner=owner)
    return answer(as_json, info, lambda: [f"engine {name}: its memory is moved out unless it has requests"])


def _keys(words: Sequence[str], options: dict[str, Any]) -> dict[str, object]:
    """Return the keys of the table: of the options, those that were given.  Raises UsageError."""
    variables = dict(_variable(text) for text in options.pop("variables"))
    given = {"as" if name == "known_as" else name: value for name, value in options.items() if value}
    if "keys" in given:
        given["keys"] = str(expanded(given["keys"]).absolute())
    if "models" in given:
        given["models"] = list(given["models"])
    keys = {"cmd": list(words), **given, "cwd": str(Path.cwd())}
    return keys | {f"env.{name}": value for name, value in variables.items()}


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise click.UsageError(f"--env {text!r}: write NAME=VALUE")
    return name, value


def _wish(home: Path, as_json: bool, name: str, wish: Wish, owner: int | None) -> int:
    """Wish, and wait until it is so.  Raises Problem if the engine does not start."""
    whose, wanted = os.geteuid() if owner is None else owner, READY if wish == "start" else OFF
    with DaemonClient(home) as client:
        before, looks = client.wish_engine(name, wish, owner=owner).report, itertools.count(1)
        while (info := _found(client, name, whose)).report.state != wanted:
            again = info.report.starts > before.starts
            if wish == "start" and info.report.state == OFF and (again or before.state == STARTING):
                raise Problem(Exit.FAILED, "engine_failed", f"engine {name} does not start: {info.report.reason}")
            if wish == "stop" and again:
                return answer(as_json, info, lambda: [f"engine {name} was stopped, and a request has started it again"])
            unchanged = (info.report.state, info.report.starts) == (before.state, before.starts)
            if next(looks) % REPEAT_LOOKS == 0 and unchanged:
                client.wish_engine(name, wish, owner=owner)  # another wish of the same second may have replaced it
            time.sleep(LOOK_S)
    return answer(as_json, info, lambda: [f"engine {name} is {wanted}"])


def _found(client: DaemonClient, name: str, owner: int | None) -> EngineInfo:
    """Return an engine that is served; of no ``owner`` in particular, best the caller's own.  Raises Problem."""
    named = [each for each in client.engines() if each.name == name and owner in (None, each.owner)]
    for info in sorted(named, key=lambda each: each.owner != os.geteuid()):
        return info
    hint = "carpool engine ls lists them; carpool serve serves those of its file"
    raise Problem(Exit.NOT_FOUND, "unknown_engine", f"no `carpool serve` has an engine {name}", hint)


def _list(home: Path, as_json: bool) -> int:
    with DaemonClient(home) as client:
        engines = client.engines()
    return answer(as_json, EngineList(engines), lambda: _lines(engines))


def _lines(engines: Sequence[EngineInfo]) -> list[str]:
    if not engines:
        return ["no engine is served: carpool engine add NAME -- COMMAND, then carpool serve"]
    out = stdout_output()
    notes = [f"{info.name}: {text}" for info in engines for text in _mapped(info)]
    return [*out.table(COLUMNS, [*map(_row, engines)]), *out.wrapped(notes)]


def _row(info: EngineInfo) -> tuple[str, ...]:
    report = info.report
    return (
        info.name,
        formatting.owner(info.owner),
        ", ".join(report.models),
        _state(info),
        info.device or "-",
        format_size(info.memory_bytes) if info.memory_bytes else "-",
        str(report.in_flight),
        "-" if report.first_token_us is None else f"{report.first_token_us / 1000:,.0f} ms",
        f"{report.tokens_per_s:,.1f}",
        "-" if report.job is None else str(report.job),
        report.url,
    )


def _state(info: EngineInfo) -> str:
    return "moved out" if info.moved_out and info.report.state == READY else info.report.state


def _mapped(info: EngineInfo) -> list[str]:
    """Return what to do about weights that are only mapped, for each of their formats."""
    text = "{} of {} files are mapped, which Carpool does not move; to load them, {}"
    mapped = info.report.mapped_bytes
    return [text.format(format_size(size), kind, LOADING_OPTIONS[kind]) for kind, size in sorted(mapped.items())]


def _facts(info: EngineInfo) -> list[tuple[str, str]]:
    report = info.report
    row = dict(zip([column.title for column in COLUMNS], _row(info), strict=True))
    return [
        ("state", f"{row['STATE']}: {report.reason}" if report.reason else row["STATE"]),
        ("owner", f"{row['OWNER']} (uid {info.owner})"),
        ("models", row["MODELS"]),
        ("address", report.url),
        ("job", row["JOB"]),
        ("device", row["DEVICE"]),
        ("memory", row["MEMORY"]),
        *(("mapped weights", text) for text in _mapped(info)),
        ("requests", f"{row['REQUESTS']} in flight"),
        ("last minute", f"first token {row['TTFT']}, {row['TOKENS/S']} tokens/s"),
        ("pinned", "yes" if report.pinned else "no"),
    ]
