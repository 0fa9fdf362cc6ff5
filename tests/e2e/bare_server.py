"""Runs scripts without Carpool, each in a fork of this process, because torch takes seconds to import.

Each line on stdin is a JSON list: a file for the output, the script, its arguments.  The answer is the exit code.
"""

import json
import os
import runpy
import sys

import torch._dynamo  # noqa: F401 - this is what takes long; the first optimizer would import it


def run(output: str, *command: str) -> None:
    log = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.argv = list(command)
    sys.path.insert(0, os.path.dirname(command[0]))  # noqa: PTH120
    runpy.run_path(command[0], run_name="__main__")
    os._exit(0)  # the interpreter's end would take all of PyTorch apart, which takes a second


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
