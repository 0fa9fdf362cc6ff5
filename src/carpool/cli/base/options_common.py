"""Shared by all commands: the options --home and --json, parameter types, output."""

from __future__ import annotations

import json
import pwd
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.core.model import Oversubscribe
from carpool.core.spelling import did_you_mean
from carpool.options.codecs import whole_number
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.metrics import metrics_address
from carpool.protocol.models import check_name
from carpool.protocol.paths import default_home, expanded
from carpool.protocol.units import parse_size, parse_time_us

F = TypeVar("F", bound=Callable[..., object])


#: Not necessarily readable: users of a server's daemon may use its directory without reading it.
HOME = click.Path(file_okay=False, readable=False)
#: A file to write: it may exist already, and need not be readable.
OUTPUT_FILE = click.Path(dir_okay=False, readable=False, path_type=Path)


def _home(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Path:
    return expanded(value).absolute() if value else default_home()


def with_common_options(function: F) -> F:
    """Add ``home: Path`` and ``as_json: bool``."""
    function = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)
    return click.option(
        "--home",
        metavar="DIR",
        type=HOME,
        callback=_home,
        help="State directory of the daemon.  [default: $CARPOOL_HOME, else that of your own daemon if it runs, else"
        " the server's, /var/lib/carpool, else ~/.local/state/carpool]",
    )(function)


def pass_on_common_options(context: click.Context, commands: Iterable[str]) -> None:
    """Pass options given before a command of a group on to that command, and to groups below."""
    given = {
        name: context.params[name]
        for name in ("home", "as_json")
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    context.default_map = dict.fromkeys(commands, given)


class Parsed(click.ParamType[Any]):
    """A parameter that a function parses; the function's ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; a ValueError becomes click's error about the parameter."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the word that stands for a value in help."""
        return self.name.upper()


class NameOf(Parsed):
    """The name of a model or an engine; the shell completes the names that ``known`` asks of the daemon."""

    def __init__(self, known: Callable[[DaemonClient], Iterable[str]]) -> None:
        super().__init__("name", check_name)
        self._known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete a name."""
        return completed(ctx, incomplete, lambda client: dict.fromkeys(self._known(client), ""))


def completed(context: click.Context, incomplete: str, words: Callable[[DaemonClient], Mapping[str, str]]) -> list[Any]:
    """Complete one of the words, with their helps, that the daemon names; none if no daemon answers."""
    from click.shell_completion import CompletionItem

    try:
        with DaemonClient(context.params.get("home") or default_home(), timeout_s=2.0) as client:
            found = words(client)
    except ClientError:
        return []  # the command itself will say why
    return [CompletionItem(word, help=text or None) for word, text in found.items() if word.startswith(incomplete)]


def positive(text: str) -> int:
    """Parse a whole number from 1 on.  Raises ValueError, for people."""
    return whole_number(text, 1)


def not_negative(text: str) -> int:
    """Parse a whole number from 0 on.  Raises ValueError, for people."""
    return whole_number(text, 0)


def user_id(user: str) -> int:
    """Return the uid of a user, given by name or uid.  Raises ValueError, for people."""
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ValueError(f"this machine has no user {user!r}: write a name or a uid") from None


OWNER = click.option(
    "--owner", type=Parsed("user", user_id), help="Owner, by name or uid (administrators only).  [default: you]"
)


def job_id(text: str) -> int:
    """Parse a job's id.  Raises ValueError, for people."""
    try:
        return positive(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a job id: ids are the numbers that `carpool ls` shows") from None


SIZE = Parsed("size", parse_size)
TIME_US = Parsed("time", parse_time_us)
POSITIVE = Parsed("n", positive)
METRICS = Parsed("address:port", metrics_address)
OVERSUBSCRIBE = click.Choice([mode.value for mode in Oversubscribe])


def print_json(value: object) -> None:
    """Print one JSON document: indented on a terminal, on one line for programs."""
    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        text = for_terminal(text)
    sys.stdout.buffer.write(text + b"\n")


def for_terminal(text: bytes) -> bytes:
    """Indent a JSON document, and escape all characters that a terminal might obey."""
    lines = msgspec.json.format(text, indent=2).decode().split("\n")
    return "\n".join(map(json_escaped, lines)).encode()


def json_escaped(line: str) -> str:
    """Return a line of JSON with escapes for characters that are not printable."""
    return line if line.isprintable() else "".join(c if c.isprintable() else _json_escape(c) for c in line)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character > "\x7f" else f"\\u{ord(character):04x}"


def print_lines(lines: Iterable[str]) -> None:
    """Print all lines in one write: ten thousand lines must not be ten thousand system calls."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def answer(as_json: bool, value: object, lines: Callable[[], Iterable[str]], code: int = 0) -> int:
    """Print an answer, as JSON or as the lines that ``lines`` makes of it, and return the exit code."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines())
    return code


def plural(count: int, noun: str) -> str:
    """A count and its noun, as in 1 job, 2 jobs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def check_device(name: str, known: Sequence[str]) -> None:
    """Check that ``name`` is one of the ``known`` devices of the daemon.  Raises Problem."""
    if name not in known:
        hint = f"{did_you_mean(name, known)}known devices: {', '.join(known)}"
        raise Problem(Exit.NOT_FOUND, "unknown_device", f"there is no device {name!r}", hint)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield a path for a new file, which takes the place of ``path`` at the end; an earlier file stays until then.

    A link is replaced, not followed.  Raises OSError; after any exception the new file is removed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which takes the place of ``path`` at the end, as `draft_of` says."""
    with draft_of(path) as draft, draft.open("xb") as file:
        yield file
