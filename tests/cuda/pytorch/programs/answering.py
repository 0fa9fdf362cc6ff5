"""An engine that fills its device, asked by HTTP: ``answering.py PORT SEED``.

A request is as many steps of `engine.py` as its prompt has letters, and its answer depends on all requests before.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from common import digest
from engine import Engine


class Handler(BaseHTTPRequestHandler):
    engine: Engine

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for _ in asked["prompt"]:
            self.engine.step()
        self.answer({"blocks": len(self.engine.cache), "state": digest([self.engine.state])})

    def answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


if __name__ == "__main__":
    port, seed = map(int, sys.argv[1:])
    Handler.engine = Engine(seed)
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
