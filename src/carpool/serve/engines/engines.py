"""All engines of a front: by model, from start to end, and as the daemon is told of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carpool.protocol.engines import MAKE_ROOM, OFF, EngineSpec, EngineState, EngineWishes, model_names, read_engines
from carpool.protocol.models import LONGEST_REASON
from carpool.protocol.unix_http import ClientError
from carpool.serve.engines.engine import Engine, EngineLauncher, EngineParts
from carpool.serve.engines.figures import EngineFigures
from carpool.serve.http.access import read_keys
from carpool.serve.oip.errors import ServeError, StartError

log = logging.getLogger(__name__)

#: Tells the daemon the states of engines, and returns what users have wished of them.
Report = Callable[[Mapping[str, EngineState]], EngineWishes]
Stamp = tuple[int, int, int]
REPORT_S = 1.0
CLOSE_S = 40.0  # a process has a grace time of its own after SIGTERM


@dataclass(frozen=True, slots=True)
class EngineDaemon:
    """The daemon.  ``set_busy`` and ``report`` are called in threads, and may raise ClientError."""

    launcher: EngineLauncher
    set_busy: Callable[[int, bool], None]  # by job
    report: Report


class Engines:
    """Engines by name and by model, as a file says: `begin` first, and `close` at the end."""

    def __init__(self, file: Path, parts: EngineParts, figures: EngineFigures, report: Report) -> None:
        """Read the file.  ``report``: called in a thread, it may raise ClientError.  Raises ValueError, StartError."""
        self.figures = figures
        self.session = parts.session
        self._parts = parts
        self._tell = report
        self._file = file
        self._engines: dict[str, Engine] = {}
        self._models: dict[str, Engine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()  # of engines that the file no longer has
        self._key_files: set[Path] = set()
        self._mistake = ""  # in the files, as they are now
        self._written: Mapping[Path, Stamp] = {}  # as they were read; at first they are read once more
        self._seen: Mapping[Path, Stamp] = {}  # at the last look
        self._take()

    async def take_over(self) -> None:
        """Go on with engines of a front that was killed; it has left them running."""
        for info, job in await self._parts.launcher.left():
            engine = self._engines.get(info.name)
            port = None if engine is None else engine.spec.port_of(info.command)
            if engine is not None and port is not None and engine.state == OFF:
                engine.take_over(job, port)

    def begin(self, url: str) -> None:
        """Start what is to be started at once.  ``url``: the front's, for users who ask which engines there are."""
        self._spawn(self._parts.turns.watch())
        self._spawn(self._report(url))
        self._preload(self._engines.values())

    async def close(self) -> None:
        """End all engines."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*self._ending, *(engine.close() for engine in self._engines.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._parts.turns.close()

    def models(self) -> Mapping[str, Engine]:
        """Return the engines by the models that they answer to."""
        return self._models

    async def _report(self, url: str) -> None:
        """Report to the daemon for ever; while it does not answer everything stays as it is."""
        while True:
            self._follow()
            for engine in [*self._engines.values()]:
                await engine.look()
            states = {engine.name: self._state(engine, url) for engine in self._engines.values()}
            try:
                self._heed(await asyncio.to_thread(self._tell, states))
            except ClientError as error:
                log.debug("the daemon does not know the states of engines: %s", error)
            await asyncio.sleep(REPORT_S)

    def _follow(self) -> None:
        """Read the files again if one has changed since the last look but one, and none is being written now.

        With a mistake in them everything stays as it is.
        """
        seen, self._seen = self._seen, self._stamps()
        if (written := self._seen) != seen or written == self._written:
            return
        self._written = written
        try:
            self._preload(self._take())
        except (ValueError, StartError) as error:
            self._say(f"a mistake in the file of engines, which stay as they are: {error}")
        else:
            self._say("")

    def _say(self, mistake: str) -> None:
        if mistake != self._mistake:
            self._parts.announce("", mistake or "the file of engines is in effect")
        self._mistake = mistake

    def _stamps(self) -> dict[Path, Stamp]:
        return {file: _stamp(file) for file in (self._file, *self._key_files)}

    def _take(self) -> list[Engine]:
        """Read the file and those of keys, and return the new engines.  Raises ValueError, StartError."""
        specs = _read(self._file)
        self._key_files = {Path(spec.keys) for spec in specs.values() if spec.keys is not None}
        keys = {name: read_keys(Path(spec.keys)) for name, spec in specs.items() if spec.keys is not None}
        new = self._update(specs)
        for engine in self._engines.values():
            engine.keys = keys.get(engine.name)
        return new

    def _update(self, specs: Mapping[str, EngineSpec]) -> list[Engine]:
        """Have exactly these engines, and return the new ones; an engine that has changed is a new one."""
        kept = {name: each for name, each in self._engines.items() if specs.get(name) == each.spec}
        new = [Engine(name, spec, self._parts) for name, spec in specs.items() if name not in kept]
        for engine in [each for name, each in self._engines.items() if name not in kept]:
            self.figures.forget(engine)
            self._spawn(engine.close(), self._ending)
        self._engines = {each.name: each for each in (*kept.values(), *new)}
        self._models = {model: each for each in self._engines.values() for model in model_names(each.name, each.spec)}
        for engine in new:
            self.figures.watch(engine)
        return new

    def _preload(self, engines: Iterable[Engine]) -> None:
        for engine in engines:
            if engine.spec.preload:
                self._spawn(_ready(engine))

    def _heed(self, wishes: EngineWishes) -> None:
        """Do what users, and the daemon, have wished of engines."""
        do = {"start": _started, "stop": Engine.stop, "sleep": Engine.sleep, MAKE_ROOM: Engine.make_room}
        for name, wish in wishes.engines.items():
            if (engine := self._engines.get(name)) is not None:
                self._spawn(do[wish](engine))

    def _state(self, engine: Engine, url: str) -> EngineState:
        first_us, per_s = self.figures.last_minute(engine.name)
        return EngineState(
            engine.state,
            reason=engine.reason[:LONGEST_REASON] if engine.state == OFF else "",
            models=list(model_names(engine.name, engine.spec)),
            job=None if engine.job is None else engine.job.number,
            starts=engine.starts,
            in_flight=engine.in_flight,
            first_token_us=first_us,
            tokens_per_s=per_s,
            pinned=engine.spec.pin,
            url=url,
            mapped_bytes=engine.mapped_bytes,
        )

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]] | None = None) -> None:
        task, tasks = asyncio.create_task(work), self._tasks if tasks is None else tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _read(file: Path) -> dict[str, EngineSpec]:
    try:
        return read_engines(file)
    except FileNotFoundError:
        return {}


def _stamp(file: Path) -> Stamp:
    """Return what differs when a file has been written, replaced, or made readable."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_ctime_ns, status.st_size)


async def _started(engine: Engine) -> None:
    """Start an engine at once, also after a start that has failed."""
    engine.may_start()
    await _ready(engine)


async def _ready(engine: Engine) -> None:
    """Start an engine without a request: what is wrong has been said where it is started."""
    with suppress(ServeError):
        async with engine.request():
            pass
