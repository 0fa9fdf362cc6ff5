"""What commands start, in forks of theirs: daemons and the server of `carpool serve`, begun with no interpreter.

A daemon has one all the same where the dynamic linker or the interpreter would find something else in its environment
than they found in ours.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

from carpool.cli.base import daemon_start
from carpool.cli.commands.models import serve
from carpool.daemon.__main__ import main as daemon_main
from carpool.serve.__main__ import main as serve_main


def start_programs_here() -> None:
    """From now on in this process and its forks."""
    serve.os = SimpleNamespace(**vars(os) | {"execv": be_server})  # type: ignore[assignment]
    daemon_start.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": start_daemon})  # type: ignore[assignment]


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("LD_", "PYTHON"))}


AT_START = at_start(os.environ)


class Daemon:
    """What `carpool` uses of `subprocess.Popen`, for a daemon that is a fork of a command."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_daemon(command: Sequence[str], **options: Any) -> Daemon | subprocess.Popen[bytes]:
    """Instead of `subprocess.Popen`."""
    if at_start(options["env"]) != AT_START:
        return subprocess.Popen(command, **options)
    pid = os.fork()
    if pid == 0:
        be_daemon(command[command.index("carpool.daemon") + 1 :], **options)
    return Daemon(pid)


def be_daemon(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: str, stdout: Any, pass_fds: tuple[int], **_: object
) -> NoReturn:
    """The frames of the command never end here: what they hold is closed already."""
    os.setsid()
    (ready,) = pass_fds
    be_at(cwd, env, os.open(os.devnull, os.O_RDONLY), stdout.fileno(), stdout.fileno())
    os.closerange(3, ready)
    os.closerange(ready + 1, os.sysconf("SC_OPEN_MAX"))
    code = 1
    with printed():
        code = daemon_main(arguments)
    end(code)


@contextmanager
def printed() -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - an interpreter would end with it, too
        traceback.print_exc()


def be_server(_: str, command: Sequence[str]) -> NoReturn:
    """Instead of `os.execv`: what `carpool serve` becomes."""
    sys.argv = [*command[command.index("-m") + 1 :]]
    end(serve_main())


def be_at(directory: str | None, environment: Mapping[str, str], *descriptors: int) -> None:
    """Takes the descriptors; one may be there twice."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in set(descriptors):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    if directory is not None:
        os.chdir(directory)


def end(code: int) -> NoReturn:
    """As an interpreter ends, except that no module is taken apart: that takes longer than most commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    os._exit(code)
