"""``carpool serve``: an endpoint that computes with the registered models."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import POSITIVE, SIZE, Parsed, with_common_options
from carpool.core.spelling import did_you_mean
from carpool.protocol.models import (
    DEFAULT_CONNECTIONS,
    DEFAULT_HOST,
    DEFAULT_PORT,
    DEFAULT_QUEUE,
    DEFAULT_STANDBY,
    ORDERS,
    FrontOptions,
    ModelInfo,
    check_name,
)
from carpool.protocol.paths import engines_file, expanded


@click.command("serve", short_help="Answer requests for inference with the registered models.")
@click.option("--host", default=DEFAULT_HOST, show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the token that clients must send; required unless only this machine can reach ADDRESS.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="Order of requests: by arrival (fcfs), deadline (edf) or priority.",
)
@click.option(
    "--store",
    "store_bytes",
    type=SIZE,
    help="Host memory for the weights of all models.  [default: half of the machine's]",
)
@click.option(
    "--standby",
    type=POSITIVE,
    default=DEFAULT_STANDBY,
    show_default=True,
    help="Worker processes per environment, in addition to the one that computes.  One of them stays free to take the "
    "place of a worker that fails; the others copy weights for the next requests.",
)
@click.option(
    "--queue",
    type=POSITIVE,
    default=DEFAULT_QUEUE,
    show_default=True,
    help="Most requests that may wait for a model; more are refused.",
)
@click.option(
    "--connections",
    type=POSITIVE,
    default=DEFAULT_CONNECTIONS,
    show_default=True,
    help="Most connections at once; more are refused.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    type=Parsed("name", check_name),
    help="Serve only this model; repeatable.  [default: all]",
)
@click.option(
    "--engines",
    "engines_file",
    metavar="FILE",
    help="File of engines, which are started when their models are asked (OpenAI's API).  "
    "[default: the one that `carpool engine add` writes]",
)
@with_common_options
def command(home: Path, as_json: bool, models: tuple[str, ...], **options: Any) -> int:
    """Answer requests for inference with models and engines, until Ctrl-C.

    Registered models are asked by the Open Inference Protocol (/v2), engines by OpenAI's API (/v1).  Models and engines
    that are added, changed or removed later are noticed.  Starts the daemon if none is running; the server
    keeps running when the daemon stops or restarts.  A line is printed when a model is ready, or why it is not.
    """
    if options["token_file"] is not None:
        options["token_file"] = str(expanded(options["token_file"]).absolute())
    with connected(home) as client:
        own = [info for info in client.models() if info.owner == os.geteuid()]
    _check_models(own, models)
    file, engines = _engines(options["engines_file"])
    options["engines_file"] = str(file)
    if not own and not engines and not as_json:
        click.echo(
            "no models yet; add them at any time: carpool model add NAME --factory module:function, "
            "or carpool engine add NAME -- COMMAND"
        )
    serving = FrontOptions(home=str(home), models=list(models), as_json=as_json, **options)
    sys.stdout.flush()
    # -P: what lies in the current directory must not be imported.
    arguments = ["-P", "-m", "carpool.serve.__main__", msgspec.json.encode(serving).decode()]
    os.execv(sys.executable, [sys.executable, *arguments])


def _engines(name: str | None) -> tuple[Path, int]:
    """Return the file of engines, whose contents are right, and their number.  Raises Problem."""
    from carpool.protocol.engines import read_engines

    path = engines_file() if name is None else expanded(name).absolute()
    try:
        return path, len(read_engines(path))
    except FileNotFoundError:
        if name is None:
            return path, 0
        hint = "carpool engine add writes the default one"
        raise Problem(Exit.NOT_FOUND, "no_engines_file", f"there is no file {path}", hint) from None
    except ValueError as error:
        raise Problem(Exit.USAGE, "bad_engines", str(error)) from None


def _check_models(own: list[ModelInfo], wanted: tuple[str, ...]) -> None:
    """Check the names of wanted models.  Raises Problem for a name that no model has."""
    known = [info.name for info in own]
    for name in wanted:
        if name not in known:
            hint = (
                f"{did_you_mean(name, known)}your models: {', '.join(known)}"
                if known
                else "carpool model add NAME --factory module:function"
            )
            raise Problem(Exit.NOT_FOUND, "unknown_model", f"there is no model {name}", hint)
