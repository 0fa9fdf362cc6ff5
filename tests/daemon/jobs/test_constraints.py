"""What users are told of jobs that must not share, and of processes that compute without Carpool."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from carpool.core.model import JobPhase
from carpool.daemon.jobs.constraints import NO_PYTORCH, SEVERAL, STARTS_WITHIN, why_exclusive, why_pinned, why_unmanaged
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import SubmitRequest
from carpool.protocol.seat import Trait
from tests.daemon.daemon_harness import FAKEJOB, Daemon

NCCL = "its processes communicate by NCCL"


def lone(daemon: Daemon, fifo: Path, *steps: str) -> int:
    """A job that computes and shows that it communicates, until something is written to the pipe."""
    talks = f"note:traits:{Trait.COLLECTIVE | Trait.DEVICE}"
    return daemon.fake("attach", "turn", talks, *steps, f"listen:{fifo}", until="TraitsSeen")


def device_of(daemon: Daemon) -> dict[str, Any]:
    (device,) = daemon.get("/v1/devices")["devices"]
    return device


@pytest.mark.parametrize(
    ("traits", "alone", "immovable"),
    [
        (Trait.DEVICE, None, None),
        (Trait.COLLECTIVE, NCCL, None),
        (
            Trait.FIXED | Trait.SHARED,
            "it has much device memory that Carpool does not manage",
            "it has given other processes",
        ),
        (Trait.UNGATED | Trait.COLLECTIVE, f"{NCCL}, and some of its driver calls bypass Carpool", None),
        (1 << 31, None, None),
    ],
)
def test_what_follows_from_traits(traits: int, alone: str | None, immovable: str | None) -> None:
    assert why_exclusive(traits) == alone
    assert (why_pinned(traits) or "").startswith(immovable or "")
    assert (why_pinned(traits) is None) == (immovable is None)


def test_the_form_of_a_call_that_passes_is_named() -> None:
    several = why_exclusive(Trait.UNGATED | SEVERAL, passing="cuMemAlloc_v3")
    assert several == (
        "some of its driver calls bypass Carpool (cuMemAlloc_v3 is not known to this version),"
        " and several of its processes use the device"
    )
    assert why_exclusive(Trait.COLLECTIVE, passing="cuMemAlloc_v3") == NCCL


def test_a_job_that_needs_its_device_to_itself_gets_it(daemon: Daemon, fifo: Path) -> None:
    job = lone(daemon, fifo, "note:fixed:4096")
    other = daemon.fake("attach", "iterate:1")
    why = f"job {job} has exclusive use of host0: {NCCL}"
    assert daemon.show(other)["reason"] == {"code": "exclusive", "text": why}
    assert daemon.show(job)["alone"] == NCCL
    assert daemon.show(job)["immovable"] is None
    assert (device_of(daemon)["alone"], device_of(daemon)["sharing"]) == (job, "concurrent")
    daemon.until_event(lambda event: event["kind"] == "Sampled" and event["data"]["usage"]["fixed"] == 4096)
    assert daemon.show(job)["fixed_bytes"] == 4096
    fifo.write_bytes(b"go")
    assert daemon.wait(job)["outcome"] == daemon.wait(other)["outcome"] == "succeeded"
    assert device_of(daemon)["alone"] is None
    assert len([event for event in daemon.events() if event["kind"] == "TraitsSeen"]) == 1


def seq_of(daemon: Daemon, kind: str) -> int:
    """The number of the latest such event: what comes later was wanted while the device was taken."""
    return max(event["seq"] for event in daemon.events() if event["kind"] == kind)


@pytest.mark.parametrize("restarted", [False, True])
def test_those_beside_it_wait_until_it_has_ended(daemon: Daemon, fifo: Path, restarted: bool) -> None:
    """A restarted daemon knows before anybody gets a turn."""
    other = daemon.fake("attach", "iterate:1", "release", "say:ready", f"listen:{fifo}", "iterate:5", line="ready")
    second = fifo.with_name("second")
    os.mkfifo(second)
    job = lone(daemon, second)
    if restarted:
        daemon.restarted()
        assert seq_of(daemon, "RestartBegan") < seq_of(daemon, "TraitsSeen") < seq_of(daemon, "RestartEnded")
    assert daemon.show(job)["alone"] == NCCL
    since = seq_of(daemon, "RestartEnded" if restarted else "TraitsSeen")
    fifo.write_bytes(b"go")
    daemon.until_event(lambda event: event["kind"] == "TurnWanted" and event["job"] == other, since=since)
    assert daemon.show(other)["reason"]["text"] == f"job {job} has exclusive use of host0: {NCCL}"
    second.write_bytes(b"go")
    assert daemon.wait(job)["outcome"] == "succeeded"
    assert daemon.wait(other)["iterations"] == 6


def test_traits_belong_to_a_process_and_not_to_its_job(daemon: Daemon, fifo: Path) -> None:
    command = f"{sys.executable} -u {FAKEJOB} attach turn note:traits:{Trait.COLLECTIVE} listen:{fifo}"
    job = daemon.submit("sh", "-c", f"{command}; {command}")
    first = daemon.until("TraitsSeen", job)
    assert daemon.show(job)["alone"] == NCCL
    fifo.write_bytes(b"go")
    gone = daemon.until_event(lambda event: event["kind"] == "Detached", since=first["seq"])
    daemon.until_event(lambda event: event["kind"] == "TraitsSeen", since=gone["seq"])
    fifo.write_bytes(b"go")
    ended = daemon.wait(job)
    assert (ended["outcome"], ended["alone"], ended["immovable"]) == ("succeeded", None, None)


LATE = STARTS_WITHIN + 2


def job(**facts: Any) -> JobRecord:
    made = JobRecord(1, 0, 0, SubmitRequest(argv=["true"], cwd="/", env={}), None, 0)
    for name, value in ({"phase": JobPhase.RUNNING, "started_us": 1} | facts).items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("facts", "now", "begin"),
    [
        ({}, LATE, NO_PYTORCH),
        ({}, LATE - 1, None),
        ({"was_seated": True}, LATE, None),
        ({"phase": JobPhase.QUEUED, "started_us": None}, LATE, None),
        ({"phase": JobPhase.ENDED}, LATE, None),
        ({"was_seated": True, "refused_pid": 7}, 1, "its process 7 computes without Carpool"),
        ({"was_seated": True, "ungated_pid": 8}, 1, "its process 8 uses the device outside"),
    ],
)
def test_only_what_is_known_is_said(facts: dict[str, Any], now: int, begin: str | None) -> None:
    said = why_unmanaged(job(**facts), now)
    assert said is None if begin is None else str(said).startswith(begin)
