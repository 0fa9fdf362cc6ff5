"""Requests per second through the inference endpoint, by the load generator ``wrk`` (Debian: ``apt-get install wrk``).

The model is tiny.  One server computes it by NumPy in the endpoint's own process, without any worker.  The other one is
`carpool serve` as users have it: its workers are jobs of a daemon.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, Skipped, median_figure, rounds_of
from benchmarks.through_serve import Served
from carpool.serve.oip.codec import encode_request
from carpool.serve.oip.messages import Message
from carpool.serve.oip.values import Tensor

CONNECTIONS = 16
DEVICE = "host:64MiB"
TARGET_PER_S = 1500.0
TIMEOUT_S = 120.0

SCRIPT = """
wrk.method = "POST"
wrk.body = io.open({body}, "rb"):read("*a")
{headers}
done = function(summary, latency, requests)
  local wrong = summary.errors
  io.write(string.format('\\n{{"requests": %d, "us": %d, "p50_us": %d, "p99_us": %d, "wrong": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    wrong.connect + wrong.read + wrong.write + wrong.status + wrong.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int

    def cpu_us(self) -> float:
        """Processor time that it has had so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e6


def run(quick: bool) -> list[Figure]:
    if shutil.which("wrk") is None:
        raise Skipped("there is no load generator; Debian: apt-get install wrk")
    seconds, rounds = (2, 1) if quick else (10, rounds_of(5))
    measured: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    bares = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = stack.enter_context(Served(directory, ["affine"], DEVICE))
        bare = stack.enter_context(_server("bare"))
        servers = {
            "the endpoint's process": stack.enter_context(_server("endpoint")),
            "a worker": Server(served.url, served.pid),
        }
        for _ in range(rounds):
            for (where, server), (form, message) in itertools.product(servers.items(), _messages().items()):
                measured[where, form].append(_load(directory, server, message, seconds))
            bares.append(_load(directory, bare, _messages()["JSON"], seconds))
    return [figure for (where, form), results in measured.items() for figure in _figures(where, form, results, bares)]


def _figures(where: str, form: str, results: list[dict[str, Any]], bare: list[dict[str, Any]]) -> list[Figure]:
    what = f"through the endpoint, tiny model in {where}, {form}"
    detail = {
        "connections": CONNECTIONS,
        "p50_us": statistics.median(result["p50_us"] for result in results),
        "p99_us": statistics.median(result["p99_us"] for result in results),
        "aiohttp_alone_per_s": [result["per_s"] for result in bare],
    }
    cpu = {"aiohttp_alone_us": [result["cpu_us"] for result in bare]}
    return [
        median_figure("endpoint", f"requests {what}", "1/s", [result["per_s"] for result in results],
                      target=TARGET_PER_S, at_least=True, detail=detail),
        median_figure("endpoint", f"the server's processor time of a request {what}", "us",
                      [result["cpu_us"] for result in results], detail=cpu),
    ]  # fmt: skip


def _messages() -> dict[str, Message]:
    """A request with one row of three numbers, in both forms."""
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    binary = encode_request([Tensor("x", "FP32", (1, 3), np.ones(3, "<f4").tobytes())])
    return {"JSON": Message(json.dumps({"inputs": [x]}).encode()), "binary tensors": binary}


@contextmanager
def _server(kind: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.endpoint_server", kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Server(process.stdout.readline().strip(), process.pid)
        finally:
            process.stdin.close()
            process.wait(TIMEOUT_S)


def _load(directory: Path, server: Server, message: Message, seconds: int) -> dict[str, Any]:
    """What wrk says, and rates.  Raises RuntimeError if anything but 200 came back."""
    body, script = directory / "body", directory / "script.lua"
    body.write_bytes(message.body)
    headers = "\n".join(
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(text)}" for name, text in message.headers.items()
    )
    script.write_text(SCRIPT.format(body=json.dumps(str(body)), headers=headers))
    command = [
        "wrk",
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "-s",
        str(script),
        f"{server.url}/v2/models/affine/infer",
    ]
    begin = server.cpu_us()
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    used_us = server.cpu_us() - begin
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    if result["wrong"]:
        raise RuntimeError(f"{result['wrong']} of {result['requests']} requests failed:\n{output}")
    return result | {"per_s": result["requests"] / result["us"] * 1e6, "cpu_us": used_us / result["requests"]}
