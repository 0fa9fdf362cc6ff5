"""Real workers and the front's handle on them: what they answer, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from carpool.devices import memfd
from carpool.runtime.launch import plain_environment
from carpool.serve.model.native_groups import Groups
from carpool.serve.oip.errors import ModelFailed, UnknownModel, WorkerLost
from carpool.serve.pool.worker_handle import Expected, Handle, WorkerSocket
from carpool.serve.prepare.subprocess import PreparedModel
from carpool.serve.wire.channel import SOCKET, TOKEN, AsyncChannel, MessageChannel, NoFront, connect
from carpool.serve.wire.messages import (
    PREFIX,
    Answer,
    Cost,
    Failed,
    FromWorker,
    Hello,
    Infer,
    Load,
    Loaded,
    ToWorker,
    heads,
)
from tests.descriptors import descriptors
from tests.serve.fakes import until
from tests.tiers import RARER_WAY, all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global X, WHAT, given_memory, torch, zoo, WIDTH, SEED, Stage, alone, asking, held, prepared, request
    import torch

    from tests.serve import given_memory, zoo
    from tests.serve.hosted import WIDTH
    from tests.serve.working import SEED, Stage, alone, asking, held, prepared, request

    X, WHAT = torch.ones(1, WIDTH), torch.zeros(1, dtype=torch.int64)


class Started(NamedTuple):
    process: asyncio.subprocess.Process
    handle: Handle


Start = Callable[..., Coroutine[Any, Any, Started]]


@pytest.fixture(scope="module")
def trying() -> Iterator[PreparedModel]:
    made = prepared("trying")
    yield made
    os.close(made.image)


@pytest.fixture
async def door() -> AsyncIterator[WorkerSocket]:
    made = WorkerSocket()
    yield made
    made.close()


@pytest.fixture
async def start(door: WorkerSocket, python: str, root: Path) -> AsyncIterator[Start]:
    """Starts workers; those that a test leaves are killed."""
    started: list[Started] = []

    async def begin(env: dict[str, str] | None = None, module: str = "carpool.serve.worker") -> Started:
        expected = door.expect()
        process = await spawn(python, module, root, (env or {}) | expected.env)
        started.append(Started(process, await expected.handle))
        return started[-1]

    yield begin
    for process, handle in started:
        handle.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def spawn(python: str, module: str, cwd: Path, env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(python, "-m", module, cwd=cwd, env=plain_environment(os.environ | env))


async def test_a_workers_life(start: Start, trying: PreparedModel) -> None:
    """One worker, because each takes seconds to begin."""
    process, handle = await start()
    assert handle.pid == process.pid
    tied = prepared("tied")
    await asyncio.gather(handle.load("tied", tied), handle.load("trying", trying))

    words = zoo.INPUTS["tied"]()
    for copied in (True, False):
        assert await handle.infer("tied", [request("tied", words=words)], None) == [alone("tied", SEED, words)]
        assert (handle.cost.copied_bytes > 0) == copied
    expected = alone("trying", SEED, torch.cat([X, X]), torch.cat([WHAT, WHAT]))
    answers = await handle.infer("trying", [asking("trying", X), asking("trying", X)], 10**15)
    assert b"".join(answer[0].data for answer in answers) == expected[0].data

    with pytest.raises(ModelFailed, match="no such word"):
        await handle.infer("trying", [asking("trying", X, 1)], None)
    with pytest.raises(UnknownModel):
        await handle.infer("gone", [asking("gone", X)], None)
    await handle.unload("tied")
    with pytest.raises(UnknownModel):
        await handle.infer("tied", [request("tied", words=words)], None)
    with pytest.raises(ModelFailed, match="another model"):
        await handle.load("other", tied._replace(entry=mixed(tied, trying)))
    assert not handle.lost.is_set()
    os.close(tied.image)

    handle.close()
    assert await process.wait() == 0
    for work in (handle.load("trying", trying), handle.unload("trying"), handle.infer("trying", [], None)):
        with pytest.raises(WorkerLost):
            await work
    assert handle.lost.is_set()


def mixed(one: PreparedModel, other: PreparedModel) -> Any:
    return replace(one.entry, source=other.entry.source)


async def test_a_stopped_process_is_seen_and_killed() -> None:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec("sleep", "600")
    handle = Handle(AsyncChannel(ours, FromWorker), process.pid)
    assert not handle.is_stopped()
    process.send_signal(signal.SIGSTOP)
    await until(handle.is_stopped)
    handle.kill()
    assert await process.wait() == -signal.SIGKILL and not handle.is_stopped()
    await handle.lost.wait()
    handle.kill()
    handle.close()
    theirs.close()


async def test_killed_before_it_says_hello(door: WorkerSocket, python: str, tmp_path: Path, stage: Stage) -> None:
    """Its framework hangs."""
    (tmp_path / "torch.py").write_text(
        "import os, signal\nopen(os.environ['TEST_SAYS'], 'w').write('x')\nsignal.pause()\n"
    )
    expected = door.expect()
    process = await spawn(python, "carpool.serve.worker", tmp_path, expected.env | stage.env)
    await stage.reached()
    process.kill()
    await process.wait()
    assert not expected.handle.done()
    expected.handle.cancel()


@pytest.mark.nightly(RARER_WAY, stays="test_killed_while_it_computes")
async def test_killed_while_it_loads(start: Start, stage: Stage) -> None:
    model = prepared("staying")
    process, handle = await start(stage.env)
    await lose(process, stage, handle, asyncio.create_task(handle.load("staying", model)))
    os.close(model.image)


async def test_killed_while_it_computes(start: Start, stage: Stage, trying: PreparedModel) -> None:
    process, handle = await start(stage.env)
    await handle.load("trying", trying)
    await lose(process, stage, handle, asyncio.create_task(handle.infer("trying", [asking("trying", X, 3)], None)))


async def lose(process: asyncio.subprocess.Process, stage: Stage, handle: Handle, asked: asyncio.Task[Any]) -> None:
    """Kill the worker at its stage; whoever has asked for something hears of it."""
    await stage.reached()
    assert not asked.done()
    process.kill()
    with pytest.raises(WorkerLost, match=f"worker {process.pid} has died"):
        await asked
    await handle.lost.wait()
    assert await process.wait() == -signal.SIGKILL


async def test_killed_while_weights_come(start: Start, stage: Stage, trying: PreparedModel) -> None:
    """Somebody else is copying, so it waits in the middle; the next worker goes on with the same memory."""
    entry = trying.entry
    device = memfd.create("shared", entry.device_bytes, sealed=True)
    Groups(device, trying.image, entry.layout.bounds, entry.key).close()  # the header is there
    memory = {given_memory.MEMORY: f"{entry.number}:/proc/{os.getpid()}/fd/{device}"}
    copying = held(device)

    first, handle = await start(memory | stage.env, "tests.serve.given_memory")
    await handle.load("trying", trying)
    await lose(first, stage, handle, asyncio.create_task(handle.infer("trying", [asking("trying", X, 4)], None)))

    os.close(copying)
    expected = [alone("trying", SEED, X, WHAT)]
    groups = len(entry.layout.bounds) - 1
    for copied in (groups, 0):  # and the last one finds everything there
        _, handle = await start(memory, "tests.serve.given_memory")
        await handle.load("trying", trying)
        assert await handle.infer("trying", [asking("trying", X)], None) == expected
        assert handle.cost.copied_groups == copied
    os.close(device)


async def test_weights_are_read_only(start: Start) -> None:
    """A model that writes into them dies, and others do not notice."""
    model = prepared("tampering")
    process, handle = await start()
    await handle.load("tampering", model)
    with pytest.raises(WorkerLost):
        await handle.infer("tampering", [asking("tampering", X, 1)], None)
    assert await process.wait() == -signal.SIGSEGV
    os.close(model.image)


LEAVING = """
import signal, socket, subprocess
from carpool.serve.wire.channel import connect
from carpool.serve.wire.channel import MessageChannel
from carpool.serve.wire.messages import Hello, ToWorker
connection, token = connect()
child = subprocess.Popen(["sleep", "1000"], pass_fds=[connection.fileno()], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
MessageChannel(connection, ToWorker).send(Hello(token))
signal.pause()
"""


async def test_a_worker_that_leaves_a_child_behind(door: WorkerSocket, python: str, root: Path) -> None:
    """The child still holds the connection."""
    expected = door.expect()
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", LEAVING), cwd=root, env=os.environ | expected.env, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    handle = await expected.handle
    process.kill()
    await handle.lost.wait()
    os.kill(child, signal.SIGKILL)
    await process.wait()


@pytest.mark.parametrize(
    ("env", "why"),
    all_but_first(
        [({}, "are not set"), ({SOCKET: "/nowhere", TOKEN: "x"}, "no server listens at /nowhere: No such file")]
    ),
)
async def test_workers_without_a_front(env: dict[str, str], why: str, python: str, root: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(python, "-m", "carpool.serve.worker"), cwd=root, env=os.environ | env, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert why in said.decode()


# What the front makes of a worker that is not one of ours.


class Impostor:
    """A connection of the test's own."""

    def __init__(self, expected: Expected, token: str | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(expected.env[SOCKET])
        self.channel = MessageChannel(self.socket, ToWorker)
        self.channel.send(Hello(expected.env[TOKEN] if token is None else token))

    async def receive(self) -> Any:
        frame = await asyncio.to_thread(self.channel.receive)
        assert frame is not None
        if frame.fd is not None:
            os.close(frame.fd)
        return frame.message


@pytest.fixture
async def impostor(door: WorkerSocket) -> AsyncIterator[tuple[Impostor, Handle]]:
    expected = door.expect()
    made = Impostor(expected)
    handle = await expected.handle
    yield made, handle
    handle.close()
    made.socket.close()


@pytest.mark.parametrize("known", [True, False])
async def test_the_door_is_private_and_leaves_nothing(known: bool) -> None:
    before = descriptors()
    door = WorkerSocket()
    expected = door.expect()
    place = Path(expected.env[SOCKET]).parent
    assert place.stat().st_mode & 0o777 == 0o700
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(expected.env[SOCKET])
    if known:  # the door has seen it, and waits for its greeting
        Impostor(other := door.expect()).socket.close()
        (await other.handle).close()
    door.close()
    assert not place.exists()
    assert expected.handle.cancelled()
    waiting.close()
    assert descriptors() == before


async def test_only_who_is_expected_comes_in(door: WorkerSocket) -> None:
    expected, other = door.expect(), door.expect()
    assert expected.token != other.token
    stranger = Impostor(expected, "a guess")
    assert await asyncio.to_thread(stranger.channel.receive) is None
    worker = Impostor(expected)
    handle = await expected.handle
    assert handle.pid == os.getpid()
    again = Impostor(expected)
    assert await asyncio.to_thread(again.channel.receive) is None
    other.handle.cancel()
    late = Impostor(other)
    assert await asyncio.to_thread(late.channel.receive) is None
    handle.close()
    for each in (stranger, worker, again, late):
        each.socket.close()


async def test_other_users_do_not_come_in(door: WorkerSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a worker speak with another user's socket."""
    for module in ("pool.worker_handle", "wire.channel"):
        monkeypatch.setattr(f"carpool.serve.{module}.peer", lambda _: (os.getpid(), os.geteuid() + 1))
    expected = door.expect()
    stranger = Impostor(expected)
    assert await asyncio.to_thread(stranger.channel.receive) is None
    stranger.socket.close()
    for name, value in expected.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NoFront, match="a socket of user"):
        connect()
    assert not expected.env.keys() & os.environ.keys()


@pytest.mark.parametrize("data", [PREFIX.pack(3, 0) + b"abc", b"\xff" * PREFIX.size, PREFIX.pack(100, 0)])
async def test_nonsense_from_a_worker(data: bytes, impostor: tuple[Impostor, Handle], trying: PreparedModel) -> None:
    worker, handle = impostor
    asked = asyncio.create_task(handle.load("trying", trying))
    assert isinstance(await worker.receive(), Load)
    worker.socket.sendall(data)
    worker.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(WorkerLost):
        await asked
    assert handle.lost.is_set()


async def test_hello_twice(impostor: tuple[Impostor, Handle]) -> None:
    worker, handle = impostor
    worker.channel.send(Hello("again"))
    await handle.lost.wait()


async def test_answers_that_nobody_waits_for(impostor: tuple[Impostor, Handle], trying: PreparedModel) -> None:
    worker, handle = impostor
    asked = asyncio.create_task(handle.infer("trying", [asking("trying", X)], None))
    first = await worker.receive()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    asked = asyncio.create_task(handle.infer("trying", [asking("trying", X)], None))
    second = await worker.receive()
    assert isinstance(second, Infer)
    output = [[*asking("trying", X).inputs]]
    worker.channel.send(Failed(first.number, "model_failed", "too late"))
    worker.channel.send(Loaded(1000))
    worker.channel.send(Answer(second.number, heads(output), Cost(1, 2, 3)), output)
    assert await asked == output
    assert handle.cost == Cost(1, 2, 3)


@pytest.mark.parametrize("answer", [Loaded(1), Answer(1, (), Cost(1, 2, 3))])
async def test_answers_to_something_else(answer: Loaded | Answer, impostor: tuple[Impostor, Handle]) -> None:
    worker, handle = impostor
    asked = asyncio.create_task(handle.infer("trying", [asking("trying", X)], None))
    await worker.receive()
    worker.channel.send(answer)
    with pytest.raises(WorkerLost, match="did not answer the request"):
        await asked
    assert handle.lost.is_set()


async def test_one_batch_at_a_time(impostor: tuple[Impostor, Handle]) -> None:
    worker, handle = impostor
    asked = asyncio.create_task(handle.infer("trying", [asking("trying", X)], None))
    await worker.receive()
    with pytest.raises(AssertionError, match="one batch at a time"):
        await handle.infer("trying", [asking("trying", X)], None)
    handle.close()
    with pytest.raises(WorkerLost):
        await asked
