"""Runs ``carpool`` commands, each in a fork of this process: most take less time than the start of an interpreter.

It listens at the socket that its argument names, until its stdin ends; a second argument is the user that it becomes.
A client (`forked_client.py`) sends its three
standard descriptors and, with `marshal`, the command's arguments, environment and directory (or None).  It hears two
lines: the number of the process, and its exit code once it has ended; a client that goes away takes it along.

Daemons that commands start are forks, too (`forked_programs.py`).
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from aiohttp import web

import carpool.cli
import carpool.sim
from carpool.cli.main import main
from carpool.daemon.api.routes import add_routes

sys.path.insert(0, str(Path(__file__).parent))
from forked_programs import be_at, end, start_programs_here

sys.path.pop(0)
chosen = selectors.DefaultSelector()


def be_command(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str | None, descriptors: Sequence[int]
) -> NoReturn:
    """This process is now as if it had been started for this command alone."""
    be_at(directory, environment, *descriptors)
    end(main(arguments))


def close_what_is_ours(*more: socket.socket) -> None:
    for key in list(chosen.get_map().values()):
        if isinstance(key.fileobj, int):
            os.close(key.fileobj)
        elif key.fileobj is not sys.stdin:
            key.fileobj.close()
    for each in (chosen, *more):
        each.close()


class Command:
    """One that runs.  Owns its client."""

    def __init__(self, client: socket.socket, pid: int) -> None:
        self._client, self._pid = client, pid
        self._handle = os.pidfd_open(pid)
        chosen.register(self._handle, selectors.EVENT_READ, self.ended)
        chosen.register(client, selectors.EVENT_READ, self.gone)
        client.sendall(f"{pid}\n".encode())

    def ended(self) -> None:
        chosen.unregister(self._handle)
        os.close(self._handle)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        with self._client, suppress(OSError, KeyError):
            chosen.unregister(self._client)
            self._client.sendall(f"{code}\n".encode())

    def gone(self) -> None:
        """The client has closed, maybe just when the command had ended."""
        with suppress(ValueError):
            chosen.unregister(self._client)
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def accept(listener: socket.socket) -> None:
    client, _ = listener.accept()
    _, descriptors, _, _ = socket.recv_fds(client, 1, 3)
    with client.makefile("rb") as request:
        command = marshal.load(request)
    pid = os.fork()
    if pid == 0:
        close_what_is_ours(client)
        be_command(*command, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    Command(client, pid)


def import_all() -> None:
    """What commands and daemons import, whenever they do; it is no garbage of any of them."""
    for package in (carpool.cli, carpool.sim):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and "report" not in module.name:  # charts: half a second
                importlib.import_module(module.name)
    add_routes(web.Application())
    gc.collect()
    gc.freeze()


def become(*uids: int) -> None:
    """All has been imported: that user needs to read nothing of it."""
    for uid in uids:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests' own process may ignore it
    import_all()
    start_programs_here()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        become(*map(int, sys.argv[2:]))
        print("ready", flush=True)
        chosen.register(listener, selectors.EVENT_READ, partial(accept, listener))
        chosen.register(sys.stdin, selectors.EVENT_READ, sys.exit)
        while True:
            for key, _ in chosen.select():
                key.data()
