"""Imports torch once inside a pretended job, and then runs each snippet named on stdin in a fork of itself.

With torch its compiler, where `tests/lean` does not leave that out.
Each answer is one line: the snippet's exit code.  Its output goes to the files <snippet>.out and <snippet>.err.
"""

import os
import sys
import traceback

import torch._dynamo  # noqa: F401 - this is what takes long


def run(path: str) -> None:
    for descriptor, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{path}.{suffix}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), descriptor)
    code = 0
    try:
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), {"__name__": "__main__"})
    except Exception:  # noqa: BLE001 - whatever the snippet raises is its result
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(line.strip())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
