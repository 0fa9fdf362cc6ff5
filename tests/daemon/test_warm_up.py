"""Warm-up in a real daemon: who waits for whom, from dispatch to the first use of the device and a window after it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from carpool.protocol.setting_text import setting_text
from tests.daemon.daemon_harness import Daemon, Make, submission

MIB = 1 << 20
WINDOW_US = 300_000
#: Uses its device when it is let go on, gives its turn back, and stays.
USES = ("attach", "say:here", "listen:{}", "turn", "iterate:5", "release", "say:used", "pause")


def two_devices(make_daemon: Make, **settings: int) -> Daemon:
    options = [word for name, value in settings.items() for word in ("--set", setting_text(name, value))]
    options += ["--device", "host:64MiB", "--device", "host:64MiB", "--policy", "pack"]
    return make_daemon(*options, "--set", "warm_limit=1").started()


def here(daemon: Daemon, fifo: Path, **fields: Any) -> int:
    return daemon.fake(*(step.format(fifo) for step in USES), **fields, line="here")


def moment(daemon: Daemon, kind: str, job: int) -> int:
    return int(daemon.until(kind, job)["now_us"])


def test_each_device_takes_one_newcomer_until_a_window_after_its_first_use(make_daemon: Make, fifo: Path) -> None:
    """However much is known of them: all have a hint, and room for all there would be."""
    daemon = two_devices(make_daemon, warm_window_us=WINDOW_US, warm_timeout_us=60_000_000)
    hint = {"persistent_bytes": 4 * MIB}
    first = here(daemon, fifo, **hint)
    second = daemon.python("import signal; print('here'); signal.pause()", **hint, line="here")
    third = daemon.python("pass", **hint)
    assert {daemon.show(first)["device"], daemon.show(second)["device"]} == {"host0", "host1"}
    assert daemon.show(third)["reason"] == {
        "code": "warm",
        "text": f"host0 is full until job {first} has warmed up",
    }
    rows = daemon.get(f"/v1/jobs/{third}/placement")["rows"]
    assert [(row["warming"], row["refusal"]["code"]) for row in rows] == [([first], "warm"), ([second], "warm")]
    fifo.write_bytes(b"go")
    daemon.until_line(first, "used")
    assert daemon.wait(third)["device"] == "host0"
    used = moment(daemon, "GrantTurn", first)
    assert moment(daemon, "StartJob", third) >= used + WINDOW_US, "not before its window was over"
    assert daemon.show(second)["phase"] == "running", "the other device warms up by itself"


def test_what_was_promised_is_kept_until_it_has_been_measured(make_daemon: Make, fifo: Path) -> None:
    daemon = two_devices(make_daemon)
    daemon.put("/v1/devices/host0", {"oversubscribe": "off"})
    hint = {"persistent_bytes": 40 * MIB, "device": "host0"}
    first = here(daemon, fifo, **hint)
    second = daemon.python("pass", **hint)
    assert daemon.show(second)["reason"]["code"] == "memory"
    (row,) = daemon.get(f"/v1/jobs/{second}/placement")["rows"]
    assert (row["free"], row["jobs"]) == (24 * MIB, [first]) and daemon.show(first)["persistent_bytes"] == 0
    fifo.write_bytes(b"go")
    assert daemon.wait(second)["outcome"] == "succeeded"
    assert daemon.show(first)["phase"] == "running", "nothing but its measurement made room"


def test_who_never_comes_near_its_device_blocks_nobody_for_long(make_daemon: Make) -> None:
    limit_us = 300_000
    daemon = two_devices(make_daemon, warm_window_us=60_000_000, warm_timeout_us=limit_us)
    idle = daemon.python("import signal; print('here'); signal.pause()", device="host0", line="here")
    later = daemon.python("pass", device="host0")
    assert daemon.wait(later)["outcome"] == "succeeded"
    assert moment(daemon, "StartJob", later) >= moment(daemon, "StartJob", idle) + limit_us
    assert daemon.show(idle)["phase"] == "running"


#: The first element ends at once; the others end when all of them are there.
MEETS = """
import os, pathlib, sys
place, number = pathlib.Path(sys.argv[1]), os.environ["CARPOOL_ARRAY_INDEX"]
if number != "0":
    os.read(os.open(place / number, os.O_RDONLY), 1)
"""


def test_elements_of_an_array_wait_for_its_first_trials_only(make_daemon: Make, tmp_path: Path) -> None:
    """They use no device, which only the first of them has told: one at a time, none of the others would end."""
    daemon = two_devices(make_daemon, warm_timeout_us=600_000_000)
    elements = [
        submission(sys.executable, "-c", MEETS, str(tmp_path), device="host0", index=number) for number in range(4)
    ]
    for number in (1, 2, 3):
        os.mkfifo(tmp_path / str(number))
    ids = daemon.post("/v1/submissions", {"jobs": elements, "arrays": [[0, 1, 2, 3]]})["ids"]
    gates = [os.open(tmp_path / str(number), os.O_WRONLY) for number in (1, 2, 3)]  # each when its element is there
    for fd in gates:
        os.close(fd)
    assert [daemon.wait(job)["outcome"] for job in ids] == ["succeeded"] * 4
