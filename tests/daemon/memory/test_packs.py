"""A job that was refused memory asks for persistent memory in place of both of its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.daemon_harness import Daemon, Make

MIB = 1 << 20


@pytest.fixture
def small(make_daemon: Make) -> Daemon:
    """A device of 64 MiB, from which no job's memory leaves."""
    daemon = make_daemon("--device", "host:64MiB").started()
    daemon.put("/v1/devices/host0", {"oversubscribe": "off"})
    return daemon


def packs(event: dict[str, Any]) -> bool:
    return event["kind"] == "MemoryRequested" and event["data"].get("packs", False)


def test_the_lane_is_given_back(small: Daemon) -> None:
    sizes = (f"grow:p:{20 * MIB}", f"grow:e:{40 * MIB}", f"touch:e:{40 * MIB}", f"grow:e:{50 * MIB}")
    job = small.fake("attach", *sizes, f"pack:{62 * MIB}", "say:packed", "pause", line="packed")
    assert small.output(job).splitlines()[-2] == f"packed {64 * MIB} 0"
    (device,) = small.get("/v1/devices")["devices"]
    assert (device["used_bytes"], device["granted_bytes"]) == (0, 64 * MIB)


def test_what_does_not_fit_changes_nothing(small: Daemon) -> None:
    sizes = (f"grow:p:{20 * MIB}", f"grow:e:{40 * MIB}", f"touch:e:{40 * MIB}")
    job = small.fake("attach", *sizes, f"pack:{65 * MIB}", "say:refused", "pause", line="refused")
    answer, persistent, ephemeral = small.output(job).splitlines()[-2].rsplit(maxsplit=2)
    assert answer == "not packed" and int(persistent) >= 20 * MIB and int(ephemeral) >= 40 * MIB
    (device,) = small.get("/v1/devices")["devices"]
    assert device["used_bytes"] == 40 * MIB


def test_a_restarted_daemon_answers_it(small: Daemon, fifo: Path) -> None:
    small.fake("attach", f"grow:p:{16 * MIB}", "iterate:5", "release", "say:ready", f"listen:{fifo}", line="ready")
    job = small.fake("attach", "iterate:5", "release", f"grow:p:{20 * MIB}", f"grow:e:{20 * MIB}", f"pack:{60 * MIB}")
    first = small.until_event(packs)
    small.restarted()
    small.until_event(packs, since=first["seq"])
    fifo.write_bytes(b"go")
    assert small.wait(job)["outcome"] == "succeeded", small.output(job)
    assert small.output(job).splitlines()[-1].startswith("packed")
