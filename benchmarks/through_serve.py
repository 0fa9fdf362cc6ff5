"""`carpool serve` as its users have it: a daemon of its own, registered models, workers as jobs, the endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.jobs import environment
from benchmarks.on_call import ROOT
from benchmarks.workloads.hosted import MARKS, ROWS, TIMES, weights_bytes
from carpool.core.model import MIB
from carpool.protocol.models import ModelRequest
from carpool.serve.client import Client as Endpoint
from tools.demo.session import Session

TIMEOUT_S = 600.0


class Asked(NamedTuple):
    """Seconds from the request on: its model is called, has its first layer, has computed; the answer is here."""

    called_s: float
    first_layer_s: float
    computed_s: float
    answered_s: float


class Served:
    """``with Served(directory, ["bert_base"], device) as served``: models of `workloads.hosted` can be asked.

    ``device``: the only one, as for ``carpool up``.  ``threads``: of what prepares a model or computes with it.
    ``client`` speaks with the daemon; ``endpoint`` is asked by `ask`.
    """

    def __init__(self, directory: Path, models: Sequence[str], device: str, threads: int = 1) -> None:
        self._directory = directory
        self._models = models
        self._threads = threads
        self._marks = directory / "marks"
        self._session = Session(directory / "state", [device], "fair")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Served:
        self._marks.write_bytes(bytes(TIMES.size))
        self.client = self._session.__enter__()
        try:
            self._serve()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        self._session.__exit__(kind, error, trace)

    def _serve(self) -> None:
        """Until all models are ready.  Raises RuntimeError with the reason why one is not."""
        env = environment(self._threads) | {MARKS: str(self._marks)}
        for name in self._models:
            factory = f"benchmarks.workloads.hosted:{name}"
            self.client.add_model(name, ModelRequest(factory, sys.executable, str(ROOT), env, max_batch=ROWS))
        command = [sys.executable, "-m", "carpool.cli", "serve", "--json", "--port", "0", "--standby", "1"]
        own = environment() | {"CARPOOL_HOME": str(self._session.home), "XDG_CACHE_HOME": str(self._directory)}
        self._process = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.url = self._said("serving")["url"]
        for _ in self._models:
            self._said("ready")
        self.endpoint = Endpoint(self.url, timeout_s=TIMEOUT_S)

    def _said(self, event: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"event": "the end"}')
        if said["event"] != event:
            raise RuntimeError(f"carpool serve said {said} instead of {event}")
        return said

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def profiles(self) -> Path:
        return self._directory / "carpool" / "profiles"

    def ask(self, model: str, x: Any) -> Asked:
        begin_ns = time.monotonic_ns()
        self.endpoint.infer(model, x)
        end_ns = time.monotonic_ns()
        called, first_layer, computed = TIMES.unpack(self._marks.read_bytes())
        if not begin_ns < called <= first_layer <= computed < end_ns:
            raise RuntimeError("the answer was not computed by the model that was asked")
        return Asked(*((at - begin_ns) / 1e9 for at in (called, first_layer, computed, end_ns)))

    def copied_bytes(self, model: str) -> int:
        """Weights that have come to the device for requests of the model, so far."""
        with urlopen(f"{self.url}/metrics", timeout=TIMEOUT_S) as page:
            families = text_string_to_metric_families(page.read().decode())
        series = ("carpool_copied_bytes_total", {"model": model})
        return round(sum(one.value for family in families for one in family.samples if one[:2] == series))


def room(model: str) -> str:
    """A host device on which the model has room beside training, but not its twin as well."""
    return f"host:{round(1.9 * weights_bytes(model) / MIB)}MiB"
