"""The entry point: finds the command, loads only its module, turns every problem into one message and an exit code."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from carpool.cli.base.cli_error import Exit, Problem, exit_code_of
from carpool.cli.base.options_common import HOME, pass_on_common_options
from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.client import ClientError
from carpool.protocol.display import escaped
from carpool.protocol.environment import REQUEST_FORM, REQUEST_VARIABLE, is_request_id, own_request_id

#: Modules of `carpool.cli.commands`, by group and in the order of the help.  The click command of a module is called
#: `command`, or as the colon says.
GROUPS: dict[str, tuple[str, ...]] = {
    "Every day": (
        "jobs.submit",
        "jobs.run",
        "jobs.ls",
        "jobs.show",
        "jobs.logs",
        "jobs.wait",
        "jobs.controls:cancel",
        "jobs.retry",
        "jobs.history",
        "devices.top",
    ),
    "Jobs": (
        "jobs.update",
        "jobs.controls:hold",
        "jobs.controls:release",
        "jobs.controls:pause",
        "jobs.controls:resume",
        "jobs.controls:requeue",
        "jobs.clean",
        "jobs.estimate",
        "jobs.limits",
    ),
    "Devices": (
        "devices.devices",
        "devices.drain",
        "devices.drain:undrain",
        "devices.usage",
        "devices.dashboard",
        "traces.timeline",
    ),
    "Models": ("models.model", "models.engine", "models.serve"),
    "Administration": (
        "daemon.up",
        "daemon.down",
        "daemon.doctor",
        "daemon.set",
        "daemon.policy",
        "traces.events",
        "daemon.policy:log_level",
        "daemon.doctor:backup",
        "daemon.install_unit",
        "traces.simulate",
        "traces.calibrate",
    ),
    "Integration": (
        "integration.joining:env",
        "integration.joining:docker_args",
        "integration.kernel",
        "integration.k8s",
        "integration.completion",
    ),
}
COLUMN_GAP = 2  # cells between a command and its help, as click has them


def command_name(place: str) -> str:
    """Return a command's name: install-unit for daemon.install_unit, hold for jobs.controls:hold."""
    return re.split("[.:]", place)[-1].replace("_", "-")


_PLACES = {command_name(place): place for places in GROUPS.values() for place in places}
COMMANDS = tuple(_PLACES)


class LazyGroup(click.Group):
    """Imports a command's module when the command is used: `carpool ls` must not pay for `carpool top`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short helps, in groups."""
        width = max(map(len, COMMANDS))
        for group, places in GROUPS.items():
            with formatter.section(group):
                room = formatter.width - formatter.current_indent - width - COLUMN_GAP
                found = ((name, self.get_command(ctx, name)) for name in map(command_name, places))
                rows = [(f"{name:<{width}}", each.get_short_help_str(room)) for name, each in found if each]
                formatter.write_dl(rows, col_spacing=COLUMN_GAP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        if cmd_name not in _PLACES:
            return None
        module, _, name = _PLACES[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"carpool.cli.commands.{module}"), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown word, raise a Problem with a hint."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from carpool.cli.base.foreign_commands import command_hint  # only wanted in this message
            from carpool.core.spelling import did_you_mean

            meant = command_hint(args[0]) or did_you_mean(args[0], COMMANDS)
            hint = f"{meant}\n" if meant else ""
            raise Problem(Exit.USAGE, "usage", f"there is no command {args[0]!r}", f"{hint}carpool --help lists them")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from carpool import __version__

        click.echo(f"carpool {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@click.option("--home", metavar="DIR", type=HOME, help="State directory of another daemon.")
@click.pass_context
def cli(context: click.Context, home: str | None, as_json: bool) -> None:
    """Carpool: many deep-learning jobs share the accelerators of one server.

    Start with `carpool submit -- python train.py`; the first submission starts the daemon.  Every command takes --json
    and --home, too.
    """
    pass_on_common_options(context, COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe.  The interpreter must not try to write the rest when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.CLOSED_PIPE
    return code


def _run(arguments: Sequence[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = _wants_json(given)
    try:
        return _called(given)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return Exit.USAGE
    except click.UsageError as error:
        return _usage(error, as_json)
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Problem as problem:
        return _report(problem.info, problem.exit_code, as_json)
    except ClientError as error:
        said = error.info  # from the daemon: printed on one line, whatever texts of users are in it
        info = said if as_json else ErrorInfo(said.code, escaped(said.message), escaped(said.hint))
        return _report(info, exit_code_of(error), as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _report(_info_of(error), Exit.FAILED, as_json)


def _called(given: Sequence[str]) -> int:
    _check_request_id()
    result = cli.main(list(given), prog_name="carpool", standalone_mode=False, obj=tuple(given))
    return result if isinstance(result, int) else Exit.OK


def _info_of(error: OSError) -> ErrorInfo:
    return ErrorInfo("os_error", f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")


def _check_request_id() -> None:
    """Check the request id in the environment, if there is one.  Raises Problem for a malformed id."""
    given = own_request_id()
    if not is_request_id(given):
        text = f"{REQUEST_VARIABLE}={given!r} is not the id of a request"
        raise Problem(Exit.USAGE, "bad_request_id", text, f"{REQUEST_FORM}; or unset {REQUEST_VARIABLE}")


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json was given to carpool itself, not to the job behind the double dash."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _usage(error: click.UsageError, as_json: bool) -> int:
    from carpool.cli.base.foreign_commands import usage_hint  # only wanted here

    hint = f"see `{error.ctx.command_path} --help`" if error.ctx else "see `carpool --help`"
    return _report(ErrorInfo("usage", error.format_message(), usage_hint(error) + hint), Exit.USAGE, as_json)


def _lines(text: str) -> str:
    """Escape a message line by line: messages of the command line itself may have several lines."""
    return "\n".join(map(escaped, text.split("\n")))


def _report(info: ErrorInfo, code: Exit, as_json: bool) -> int:
    sys.stdout.flush()  # earlier output comes before the message
    if as_json:
        import msgspec

        from carpool.cli.base.options_common import json_escaped

        print(json_escaped(msgspec.json.encode(ErrorBody(info, own_request_id())).decode()), file=sys.stderr)
        return code
    from carpool.cli.render.output import stderr_output

    print(f"{stderr_output().painted('red', 'carpool:')} {_lines(info.message)}", file=sys.stderr)
    if info.hint:
        print(f"  {_lines(info.hint)}", file=sys.stderr)
    return code
