"""A server for `bench_endpoint`: ``python -m benchmarks.endpoint_server endpoint|bare``.

``endpoint`` computes in its own process, by NumPy; ``bare`` is aiohttp alone, which reads each request and answers with
fixed bytes.  Prints its URL, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from carpool.serve.http.endpoint import Endpoint, EndpointOptions
from tests.serve.backend import NumpyBackend


async def serve(kind: str) -> None:
    if kind == "endpoint":
        endpoint = Endpoint(NumpyBackend(), EndpointOptions(port=0))
        print(await endpoint.start(), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await endpoint.stop()
    else:
        runner = web.AppRunner(_bare(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


def _bare() -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"x" * 100)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    return app


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
