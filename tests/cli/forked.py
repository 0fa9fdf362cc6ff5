"""Runs ``carpool`` commands, each in a fork of this process: most take less time than the start of an interpreter.

Each line on stdin is a JSON list: the command's arguments, its environment, its directory (or null) and two files for
its output.  The answer is two lines: the number of the process that runs it, and its exit code once it has ended.
"""

import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Sequence

import aiohttp.web  # noqa: F401 - `carpool serve` imports it when it has to

import carpool.cli
from carpool.cli.main import main


def become(arguments: Sequence[str], environment: dict[str, str], directory: str | None, *output: str) -> None:
    """This process is now as if it had been started for this command alone."""
    for descriptor, path in enumerate((os.devnull, *output)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CLOEXEC), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    if directory is not None:
        os.chdir(directory)
    sys.exit(main(arguments))


for module in pkgutil.walk_packages(carpool.cli.__path__, "carpool.cli."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        become(*json.loads(line))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
