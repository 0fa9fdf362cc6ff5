"""An engine that computes nothing: it answers as servers of language models do, and fails as it is told.

Arguments: its port, its model, and a directory where it notes clients that leave.  A prompt decides: ``die`` ends the
process after a token, ``hold`` answers until the client leaves, ``echo`` returns the request, everything else is
answered with its words.
"""

import json
import mmap
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, MODEL, NOTES = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, {"path": self.path})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"].startswith("multipart/"):
            self.answer(200, {"text": body.decode("latin-1")})
        elif (asked := json.loads(body))["model"] != MODEL:
            self.answer(404, {"error": {"message": f"no model {asked['model']}"}})
        elif (prompt := asked["prompt"]) == "echo":
            self.answer(200, {"headers": dict(self.headers), "path": self.path, "body": body.decode()})
        elif asked.get("stream"):
            self.stream(prompt)
        elif prompt == "die":
            self.answer(200, {"half": "an answer"}, cut=5)
            os._exit(3)
        else:
            usage = {"completion_tokens": len(prompt.split())}
            self.answer(200, {"choices": [{"text": f"{MODEL}: {prompt}"}], "usage": usage})

    def answer(self, status: int, value: object, cut: int = 0) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])

    def stream(self, prompt: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        words = iter(lambda: "more", "") if prompt == "hold" else iter([MODEL, *prompt.split()])
        try:
            for number, word in enumerate(words):
                if prompt == "die" and number:
                    os._exit(3)
                self.event(json.dumps({"choices": [{"index": 0, "delta": {"content": f"{word} "}}]}))
                time.sleep(0.01 if prompt == "hold" else 0)
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            (NOTES / "left").touch()
            self.close_connection = True

    def event(self, text: str) -> None:
        event = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))


if __name__ == "__main__":
    (NOTES / f"started-{os.getpid()}").touch()
    if (NOTES / "broken").exists():
        sys.exit(7)
    if (weights := NOTES / "weights").exists():
        with weights.open("rb") as file:
            kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    ThreadingHTTPServer(("127.0.0.1", PORT), Engine).serve_forever()
