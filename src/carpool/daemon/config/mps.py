"""The MPS server that jobs and device agents are to use, where lanes share a GPU through one.

`carpool mps on` starts it with a pipe in the Carpool directory, where no program would look.  A pipe that is named in
the environment of a submission or of the daemon is used instead.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from carpool.core.model import DeviceId, Sharing
from carpool.daemon.config.options import DeviceOption
from carpool.protocol.paths import Home

PIPE = "CUDA_MPS_PIPE_DIRECTORY"


def pipe_environment(home: Home, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variable that leads to the server; empty: the machine's own server is used, if there is one."""
    if PIPE in environ:
        return {PIPE: environ[PIPE]}
    return {PIPE: str(home.mps_pipe)} if home.mps_on.exists() else {}


class MpsPipe:
    """The server for jobs; on devices shared by other means, jobs must not share the server's faults."""

    def __init__(self, home: Home, options: Iterable[DeviceOption]) -> None:
        self._home = home
        self._served = {option.id for option in options if option.sharing is Sharing.MPS}

    def environment(self, devices: Iterable[DeviceId]) -> dict[str, str]:
        """Return additional variables for a job on these devices; the job's own environment prevails."""
        return pipe_environment(self._home) if self._served.intersection(devices) else {}
