"""A training job's first iterations over fake tensors: its own code, its own shapes, none of its bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch._subclasses.fake_tensor import FakeTensorMode

from carpool.estimate.base import Features
from carpool.estimate.rehearsal.arenas import Arenas
from carpool.estimate.rehearsal.recorder import Recorder
from carpool.estimate.rehearsal.standins import stand_ins
from carpool.estimate.rehearsal.watch import STEPS, Enough, Watch


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of a rehearsal.  ``error``: what ended the rehearsal early; facts seen until then are kept."""

    features: Features
    persistent: int  # bytes
    ephemeral: int  # bytes
    steps: int
    error: BaseException | None = None


def rehearse(play: Callable[[], object], limit_s: float) -> Rehearsal:
    """Run ``play`` until its eighth optimizer step, its end, an error, or a step after half of ``limit_s``."""
    arenas = Arenas()
    begin = time.monotonic()
    watch = Watch(arenas, lambda steps: steps >= STEPS or time.monotonic() - begin > limit_s / 2)
    error: BaseException | None = None
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), Recorder(arenas), stand_ins():
            play()
    except Enough:
        pass
    except SystemExit as left:
        error = left if watch.steps == 0 else None
    except Exception as failed:  # noqa: BLE001 - any error of the script goes into the answer
        error = failed
    finally:
        watch.remove()
    return Rehearsal(watch.features, arenas.persistent, arenas.ephemeral, watch.steps, error)
