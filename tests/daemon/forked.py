"""Runs daemons, each in a fork of this process, which has imported all of it: an interpreter's start takes longer.

Each message on the socket, which is the standard input, is a JSON list of a daemon's arguments, its environment, and
constants of its modules that are to have other values.  With it come three descriptors: for the daemon's standard
error, for the line that says that it is ready, and for the number of its process and, once it has ended, its exit code.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

from aiohttp import web

from carpool.daemon.__main__ import main
from carpool.daemon.api.routes import add_routes

#: How many descriptors daemons have from the start: all of their own are above 1,023 then.
DESCRIPTORS = "CARPOOL_TEST_DESCRIPTORS"


def prepare() -> None:
    """What is the same in every daemon: patterns of its routes; and its modules are no garbage of any of them."""
    add_routes(web.Application())
    gc.collect()
    gc.freeze()


def become(
    arguments: Sequence[str], environment: dict[str, str], constants: dict[str, float], error: int, ready: int
) -> None:
    """This process is now as if it had been started for this daemon alone."""
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        assert hasattr(sys.modules[module], constant), name
        setattr(sys.modules[module], constant, value)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, descriptor in enumerate((null, null, error)):
        os.dup2(descriptor, number)
    os.close(null)
    os.close(error)
    os.environ.clear()
    os.environ.update(environment)
    open_descriptors(int(os.environ.pop(DESCRIPTORS, "0")))
    sys.exit(main([*arguments, "--ready-fd", str(ready)]))


def open_descriptors(number: int) -> None:
    if number:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for _ in range(number):
        os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def follow(request: bytes, error: int, ready: int, told: int) -> None:
    """Start the daemon and wait for its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    daemon = os.fork()
    if daemon == 0:
        os.close(told)
        become(*json.loads(request), error, ready)
    for descriptor in (0, error, ready):
        os.close(descriptor)
    os.write(told, f"{daemon}\n".encode())
    os.write(told, f"{os.waitstatus_to_exitcode(os.waitpid(daemon, 0)[1])}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    prepare()
    requests = socket.socket(fileno=os.dup(0))
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, 1 << 17, 3)
        if not request:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            follow(request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
