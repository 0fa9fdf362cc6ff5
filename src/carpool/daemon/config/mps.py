"""The MPS server that jobs and device agents are to use, where lanes share a GPU through one.

`carpool mps on` starts it with a pipe in the Carpool directory, where no program would look.  Whoever names another
pipe, where a job is submitted or where the daemon is started, has one.

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
    """The variable that leads to the server; nothing: that of the machine, if there is one."""
    if PIPE in environ:
        return {PIPE: environ[PIPE]}
    return {PIPE: str(home.mps_pipe)} if home.mps_on.exists() else {}


class MpsPipe:
    """For jobs: on devices that are shared by other means they must not share a server's faults."""

    def __init__(self, home: Home, options: Iterable[DeviceOption]) -> None:
        self._home = home
        self._served = {option.id for option in options if option.sharing is Sharing.MPS}

    def environment(self, devices: Iterable[DeviceId]) -> dict[str, str]:
        """What the environment of a job on these devices has besides, unless it says otherwise itself."""
        return pipe_environment(self._home) if self._served.intersection(devices) else {}
