"""``python -P -m carpool.serve.__main__ JSON``: the process that `carpool serve` becomes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from carpool.protocol.api import ErrorBody, ErrorInfo
from carpool.protocol.models import FrontOptions
from carpool.serve.engines.engines import EngineDaemon
from carpool.serve.oip.errors import StartError
from carpool.serve.pool.launcher import DaemonLauncher, DaemonQueries, DaemonRegistry
from carpool.serve.pool.pool import Pool
from carpool.serve.pool.worker_handle import WorkerSocket
from carpool.serve.prepare.subprocess import prepare
from carpool.serve.server import ServerParts, serve

FAILED = 1


def main() -> int:
    """Serve until SIGINT or SIGTERM; return the exit code.  The only argument: `FrontOptions` as JSON."""
    serving = msgspec.json.decode(sys.argv[1], type=FrontOptions)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s carpool: %(message)s")
    try:
        with suppress(KeyboardInterrupt):  # the second SIGINT: open requests are dropped
            asyncio.run(_run(serving))
    except StartError as error:
        info = ErrorInfo("cannot_serve", str(error))
        text = msgspec.json.encode(ErrorBody(info)).decode() if serving.as_json else f"carpool: {error}"
        print(text, file=sys.stderr)
        return FAILED
    return 0


async def _run(serving: FrontOptions) -> None:
    """Serve until SIGINT or SIGTERM; a further signal ends the process at once.  Raises StartError."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    daemon = DaemonQueries(Path(serving.home))
    launcher = DaemonLauncher(daemon)
    with closing(DaemonRegistry(daemon, os.geteuid())) as registry, closing(WorkerSocket()) as door:
        parts = ServerParts(
            registry=registry,
            prepare=prepare,
            new_pool=lambda environment: Pool(environment, launcher, door, standby=serving.standby),
            engines=EngineDaemon(launcher, daemon.client().set_busy, daemon.client().report_engines),
        )
        await serve(serving, parts, stopping)


if __name__ == "__main__":
    sys.exit(main())
