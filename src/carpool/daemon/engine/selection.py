"""By what means a job shares its device, where its user leaves that to Carpool.

Only a device whose driver can suspend processes has the choice.  The checkpoint engine is chosen for a command of which
an earlier run computed beside Carpool, and for a program that libcarpool evidently cannot be loaded into, nor into what
it starts.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from carpool.core.model import DeviceId, Engine
from carpool.daemon.engine.preload_check import Command, Look, look
from carpool.daemon.jobs.table import EngineChoice, may_use
from carpool.daemon.privileges.direct import groups_of
from carpool.daemon.system.background import in_background
from carpool.daemon.system.drop_privileges import become_reader
from carpool.devices.base import DeviceBackend
from carpool.protocol.api import AUTO, SubmitRequest

LIBRARY = Path(__file__).resolve().parents[2] / "_native" / "libcarpool.so"
#: A file system may not answer: so long is waited for it, and so many threads of one user may wait for ever.
PATIENCE_S = 5.0
MOST_LOOKS = 16
NO_ANSWER = "it is not known whether libcarpool can be loaded into {}: its file system does not answer"

Earlier = Callable[[int, SubmitRequest], str]


class Engines:
    """``earlier``: why a command's earlier run speaks for the checkpoint engine; empty: it does not."""

    def __init__(self, devices: Mapping[DeviceId, DeviceBackend], earlier: Earlier, library: Path = LIBRARY) -> None:
        self._devices = devices
        self._earlier = earlier
        self._library = library
        self._looks: Counter[int] = Counter()  # by user

    async def choose(self, spec: SubmitRequest, uid: int, gid: int) -> tuple[SubmitRequest, EngineChoice]:
        """The submission with an engine, and why it is that one."""
        if spec.engine != AUTO:
            return spec, EngineChoice()
        engine, why = Engine.GRANT, ""
        if self._has_choice(spec):
            engine, why = await self._chosen(spec, uid, gid)
        return msgspec.structs.replace(spec, engine=engine.value), EngineChoice(True, why)

    def _has_choice(self, spec: SubmitRequest) -> bool:
        """Jobs that share with nobody or have several devices have not, nor have those that cannot be started later."""
        if spec.foreground or spec.exclusive or spec.gpus > 1:
            return False
        return any(device.checkpoint and may_use(spec, device.id) for device in self._devices.values())

    async def _chosen(self, spec: SubmitRequest, uid: int, gid: int) -> tuple[Engine, str]:
        why = self._earlier(uid, spec)
        if why:
            return Engine.CHECKPOINT, why
        path = spec.env.get("PATH", os.defpath)
        found = await self._look(Command(spec.argv[0], spec.cwd, path, uid, gid))
        return Engine.CHECKPOINT if found.beyond else Engine.GRANT, found.text

    async def _look(self, command: Command) -> Look:
        """In a thread of its own, which has the rights of the job's owner and no others."""
        unknown = Look(False, NO_ANSWER.format(command.name))
        if self._looks[command.uid] >= MOST_LOOKS:
            return unknown
        answer: asyncio.Future[Look] = asyncio.get_running_loop().create_future()

        def work() -> Look:
            become_reader(command.uid, command.gid, groups_of(command.uid, command.gid))
            return look(command, self._library)

        def done(result: Look | Exception) -> None:
            self._count(command.uid, -1)
            if not answer.done():
                answer.set_result(result if isinstance(result, Look) else Look(False, str(result)))

        self._count(command.uid, 1)
        try:
            in_background("look", work, done)
        except RuntimeError as error:  # there can be no further thread now
            self._count(command.uid, -1)
            return Look(False, f"it is not known whether libcarpool can be loaded into {command.name}: {error}")
        with suppress(TimeoutError):
            return await asyncio.wait_for(answer, PATIENCE_S)
        return unknown

    def _count(self, uid: int, more: int) -> None:
        self._looks[uid] += more
        if not self._looks[uid]:
            del self._looks[uid]
