"""Two Jupyter notebooks share a device that is too small for both: the idle one costs nothing, and answers soon."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy
import pytest

from carpool.protocol.api import EventInfo, JobInfo
from carpool.protocol.client import DaemonClient

if TYPE_CHECKING:
    from tests.notebooks.notebook import Notebook

MIB = 1 << 20
#: More than half of the device.
TABLE = "import os, torch\ntable = torch.arange({mib} << 18, dtype=torch.int32)\nos.getpid()"
TABLE_MIB = 56
MODEL = """
from torch import nn, optim
torch.manual_seed(0)
model, data = nn.Linear(64, 64), torch.randn(256, 64)
optimizer = optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        table[:1000].add_(1)
"""
PATIENCE_S = 60.0


def job_of(client: DaemonClient, notebook: Notebook) -> Callable[[], JobInfo]:
    """The notebook with a table that needs more than half of the device, as a job."""
    pid = int(notebook.run(TABLE.format(mib=TABLE_MIB)))
    number = next(job.id for job in client.jobs() if job.pid == pid)
    return lambda: client.job(number)


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def digest(numbers: numpy.ndarray) -> str:
    return hashlib.sha256(numbers).hexdigest()


def turns_begun(events: list[EventInfo], job: int) -> list[EventInfo]:
    return [
        event
        for event in events
        if (event.kind == "GrantTurn" and event.job == job)
        or (event.kind == "TurnPassed" and event.data.get("to") == job)
    ]


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="tests/daemon/memory/test_oversubscription.py::test_an_idle_holder_loses_its_turn",
)
def test_an_idle_notebook_costs_nothing_and_answers_after_one_turn(
    client: DaemonClient, new_notebook: Callable[[], Notebook]
) -> None:
    idle, busy = new_notebook(), new_notebook()
    idle_job, busy_job = job_of(client, idle), job_of(client, busy)
    assert idle_job().offloaded, "the other one's table needs the memory"
    busy.run(MODEL + "train(10)")

    # The busy one computes: nothing is taken from it, not even its turn.
    seen = max(event.seq for event in client.events())
    busy.run("train(300)")
    meanwhile = {event.kind for event in client.events(since=seen)} - {"Sampled", "DeviceLoad"}
    assert meanwhile <= {"Tick", "HostMeasured"}, meanwhile
    assert (idle_job().holds_turn, idle_job().offloaded) == (False, True)

    # The idle one answers its next cell while the other goes on.
    steps = busy_job().iterations
    cell = busy.begin("train(100_000_000)")
    until(lambda: busy_job().iterations > steps + 20)
    seen = max(event.seq for event in client.events())
    assert idle.run("int(table[:1000].sum())") == str(sum(range(1000)))
    events = list(client.events(since=seen))
    wanted = next(event for event in events if event.kind == "TurnWanted" and event.job == idle_job().id)
    granted = turns_begun(events, idle_job().id)[0]
    between = [event for event in events if wanted.seq < event.seq < granted.seq]
    assert not turns_begun(between, busy_job().id), "it waited for more than one turn of the other"

    # The stop button works, and what the busy one has is what it computed.
    steps = busy_job().iterations
    until(lambda: busy_job().iterations > steps + 20)
    busy.interrupt()
    assert "KeyboardInterrupt" in busy.end(cell, fails=True)
    done = int(busy.run("int(table[0])"))
    assert busy.run("bool((table[:1000] == torch.arange(1000) + table[0]).all())") == "True"
    assert done >= 10 + 300 + 40
    rest = numpy.arange(1000, TABLE_MIB << 18, dtype=numpy.int32)
    assert busy.run("import hashlib; hashlib.sha256(table[1000:].numpy()).hexdigest()") == repr(digest(rest))
    assert min(idle_job().moved.out_bytes, busy_job().moved.out_bytes) >= TABLE_MIB * MIB


def test_restart_and_shutdown_end_the_job(client: DaemonClient, new_notebook: Callable[[], Notebook]) -> None:
    notebook = new_notebook()
    notebook.run("import torch; kept = torch.ones(1000)")
    notebook.restart()
    assert notebook.run("'kept' in dir()") == "False"
    first, second = client.jobs()
    assert client.wait(first.id, PATIENCE_S).phase == "ended" and client.job(second.id).phase == "running"
    notebook.close()
    assert client.wait(second.id, PATIENCE_S).outcome == "succeeded"
