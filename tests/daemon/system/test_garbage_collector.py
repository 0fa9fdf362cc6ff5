"""What is there when a daemon is ready is not looked at again, and is freed all the same; cycles are still found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from carpool.daemon.system.own_process import THRESHOLDS
from tests.daemon.daemon_harness import Daemon

#: In a process of its own: what is kept is kept for good.
CHECKS = """
import gc, weakref
from carpool.daemon.system.own_process import THRESHOLDS, collect_rarely, keep_what_is_there

class Thing:
    pass

def cycle():
    thing = Thing()
    thing.itself = thing
    return weakref.ref(thing)

collect_rarely()
assert gc.get_threshold() == THRESHOLDS and gc.isenabled()
before, kept = cycle(), Thing()
keep_what_is_there()
assert before() is None, "what nobody holds is not kept"
assert gc.get_freeze_count() > 1000 and len(gc.get_objects()) < 1000
seen, later = weakref.ref(kept), cycle()
del kept
assert seen() is None, "what is kept is freed with its last reference"
gc.collect()
assert later() is None, "cycles that come later are found"
"""


def test_what_is_there_is_kept_out_of_collections() -> None:
    subprocess.run([sys.executable, "-c", CHECKS], check=True)


#: Runs in the daemon, which loads it after it is ready.
LOOKS = """
import gc
from pathlib import Path
from carpool.policies import BasePolicy

Path({found!r}).write_text(f"{{gc.get_threshold()[0]}} {{gc.get_freeze_count()}}")

class Looks(BasePolicy):
    name = "looks"
"""


def test_a_daemon_that_is_ready_has_done_so(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(LOOKS.format(found=str(tmp_path / "found")))
    daemon.put("/v1/policy", {"name": f"{tmp_path / 'looks.py'}:Looks"})
    threshold, kept = map(int, (tmp_path / "found").read_text().split())
    assert threshold == THRESHOLDS[0] and kept > 10_000
