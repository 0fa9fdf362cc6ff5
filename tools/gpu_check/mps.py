"""An MPS server for the processes that a measurement starts, where the machine has one.  Not yet run on a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.gpu_check.registry import Skip

CONTROL = "nvidia-cuda-mps-control"
PATIENCE_S = 60
VARIABLES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")


@contextmanager
def mps_server() -> Iterator[None]:
    """Everything that is started meanwhile uses it.  Raises Skip where none runs.

    The server is one of its own, in a directory of its own, and ends with this; no mode of the GPU is changed.
    """
    if shutil.which(CONTROL) is None:
        raise Skip(f"there is no {CONTROL} here")
    before = {name: os.environ.get(name) for name in VARIABLES}
    with tempfile.TemporaryDirectory(prefix="mps-") as directory:
        os.environ.update(dict.fromkeys(VARIABLES, directory))
        try:
            try:
                _control(["-d"])
                yield
            finally:
                with suppress(Skip):  # none has come up, or it has gone
                    _control([], "quit\n")
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                os.environ.update({} if value is None else {name: value})


def _control(arguments: list[str], text: str = "") -> None:
    """Raises Skip if it cannot be started or does not answer."""
    with tempfile.TemporaryFile("w+") as said:  # of a pipe the server, which goes on, would keep the other end
        try:
            done = subprocess.run(
                [CONTROL, *arguments], input=text, stdout=said, stderr=said, text=True, timeout=PATIENCE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Skip(f"the MPS server cannot be used: {error}") from None
        said.seek(0)
        if done.returncode:
            raise Skip(f"the MPS server cannot be used: {said.read().strip()}")
