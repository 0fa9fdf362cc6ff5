"""Engines without Python: they attach by themselves, and are managed as those with PyTorch are."""

from __future__ import annotations

import os
import random
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.live import PATIENCE_S, Workload
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Running

Answers = dict[str, list[int]]
CACHE_MIB = 24
PROMPTS = [f"prompt {number} of many" for number in range(12)]
SOURCES = Path(__file__).with_name("native")
#: The library is linked to the program, or opened by it.
WAYS = {"linked": [], "opened": ["-DOPENED"]}


class Asked:
    """A client of an engine, with a connection of its own for each prompt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self) -> socket.socket:
        until = time.monotonic() + PATIENCE_S
        while True:
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(str(self._path))
                return client
            except OSError:
                client.close()
                assert time.monotonic() < until, "the engine does not answer"
                time.sleep(0.02)

    def answer(self, prompt: str) -> list[int]:
        with closing(self.connect()) as client, client.makefile("rw") as lines:
            lines.write(f"{prompt}\n")
            lines.flush()
            return [int(line) for line in iter(lines.readline, "\n")]

    def end(self) -> None:
        with closing(self.connect()) as client:
            client.sendall(b"end\n")


class Front:
    """Says for an engine on a socket when it has requests, as `carpool serve` does for those behind HTTP."""

    def __init__(self, daemon: Daemon, workload: type[Workload], name: str, *how: str) -> None:
        path = daemon.home / f"{name}.sock"
        self._daemon, self._client = daemon, Asked(path)
        script = workload("engine", (str(path), str(CACHE_MIB), *how))
        self.job: Running = daemon.submit_script(script, service=100, engine=True, name=name)

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._daemon.client.set_busy(self.job.id, True)
        yield
        self._daemon.client.set_busy(self.job.id, False)

    def answer(self, prompt: str) -> list[int]:
        with self.busy():
            return self._client.answer(prompt)

    def end(self) -> None:
        self._daemon.client.set_busy(self.job.id, True)  # a job that has ended has no requests
        self._client.end()
        self.job.result()


class Native(Workload):
    """The engine, in one of the `WAYS`."""

    PROGRAM: ClassVar[Path]

    def command(self, out: Path) -> list[str]:
        return [str(self.PROGRAM), str(out), *self.arguments]


def compiled(place: Path, way: str) -> type[Native]:
    library, program = place / "libggml-base.so.0", place / way
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    own = ["-fPIC", "-shared", "-Wl,-soname,libggml-base.so.0", str(SOURCES / "ggml_base.c"), "-o", str(library)]
    subprocess.run([*command, *own], check=True)
    linked = [] if way == "opened" else [str(library)]
    rest = [*linked, f"-Wl,-rpath,{place}", "-lpthread", "-ldl", "-o", str(program)]
    subprocess.run([*command, *WAYS[way], str(SOURCES / "engine.c"), *rest], check=True)
    return type("Compiled", (Native,), {"PROGRAM": program})


@pytest.fixture(scope="module", params=all_but_first([*WAYS]))
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> type[Native]:
    return compiled(tmp_path_factory.mktemp("native"), request.param)


@pytest.fixture(scope="module")
def alone(native: type[Native], environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of an engine without Carpool."""
    directory = tmp_path_factory.mktemp("alone")
    path = directory / "engine.sock"
    command = native("engine", (str(path), str(CACHE_MIB))).command(directory / "out")
    engine, client = subprocess.Popen(command, env=environment), Asked(path)
    found = {prompt: client.answer(prompt) for prompt in PROMPTS}
    client.end()
    assert engine.wait(PATIENCE_S) == 0
    return found


def test_a_native_engine_beside_training(
    bare: Bare, eager_daemon: Daemon, native: type[Native], alone: Answers, workload: type[Workload], tmp_path: Path
) -> None:
    front, stop = Front(eager_daemon, native, native.PROGRAM.name), tmp_path / "stop"
    training = eager_daemon.submit(workload("steady", ("busily", str(stop))))
    pauses = random.Random(1)
    for prompt in PROMPTS:
        assert front.answer(prompt) == alone[prompt]
        time.sleep(pauses.uniform(0, 0.1))  # training computes meanwhile
    stop.touch()
    result = training.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    front.end()
    assert front.job.info().persistent_bytes >= CACHE_MIB << 20, "its memory is that of the device"


def test_native_engines_that_do_not_fit_together(daemons: Daemons, native: type[Native], alone: Answers) -> None:
    daemon = daemons(f"host:{CACHE_MIB + CACHE_MIB // 2}MiB")
    fronts = [Front(daemon, native, name) for name in ("one", "other")]
    for prompt in PROMPTS:
        assert [front.answer(prompt) for front in fronts] == [alone[prompt]] * 2
    for front in fronts:
        info = front.job.info()
        assert info.residue_bytes == 0 and info.moved.out_bytes >= CACHE_MIB << 20
        front.end()


def test_a_native_job_with_a_helper_below_a_shell(eager_daemon: Daemon, native: type[Native], alone: Answers) -> None:
    path = eager_daemon.home / f"job-{native.PROGRAM.name}.sock"
    script = native("engine", (str(path), str(CACHE_MIB), "helper"))
    job, client = eager_daemon.submit_script(script, before=["sh", "-c", '"$@"; exit $?', "sh"]), Asked(path)
    assert {prompt: client.answer(prompt) for prompt in PROMPTS[:3]} == {p: alone[p] for p in PROMPTS[:3]}
    client.end()
    assert job.result() == {"asked": 3}
    assert job.info().persistent_bytes >= CACHE_MIB << 20


#: Uses ggml's memory, and then PyTorch.
BOTH = """
import ctypes, sys
library = ctypes.CDLL("LIBRARY")
library.ggml_aligned_malloc.restype = ctypes.c_void_p
memory = library.ggml_aligned_malloc(ctypes.c_size_t(2 << 20))
ctypes.memset(memory, 1, 2 << 20)
import torch
assert float(torch.ones(1 << 12).sum()) == 1 << 12
"""


def test_pytorch_may_come_after_ggml(eager_daemon: Daemon, native: type[Native]) -> None:
    script = BOTH.replace("LIBRARY", str(native.PROGRAM.with_name("libggml-base.so.0")))
    job = eager_daemon.submit_taking(script, service=100, engine=True)
    info = job.wait()
    assert info.outcome == "succeeded" and info.persistent_bytes >= 2 << 20
    assert "carpool: warning" not in job.log()


#: Until the test says so, the job is not the engine yet.
LATER = ["sh", "-c", 'until [ -e go ]; do sleep 0.02; done; exec "$@"', "sh"]


def test_a_native_engine_waits_for_the_next_daemon(daemons: Daemons, native: type[Native], alone: Answers) -> None:
    daemon = daemons()
    path = daemon.home / "engine.sock"
    job = daemon.submit_script(native("engine", (str(path), str(CACHE_MIB))), before=LATER, service=100, engine=True)
    daemon.kill()
    (daemon.home / "go").touch()
    client = Asked(path)
    daemon.start()
    assert client.answer(PROMPTS[0]) == alone[PROMPTS[0]]
    client.end()
    assert job.result() == {"asked": 1}
    assert job.info().persistent_bytes >= CACHE_MIB << 20
