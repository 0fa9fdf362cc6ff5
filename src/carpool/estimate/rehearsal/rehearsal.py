"""A training job's first iterations over fake tensors: its own code, its own shapes, none of its bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from carpool.estimate.base import Features
from carpool.estimate.rehearsal.arenas import Arenas
from carpool.estimate.rehearsal.recorder import Recorder
from carpool.estimate.rehearsal.values import plain
from carpool.estimate.rehearsal.watch import STEPS, Enough, Watch


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """``error``: what ended it early; what has been seen until then is still there."""

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
        with FakeTensorMode(allow_non_fake_inputs=True), Recorder(arenas), _harmless():
            play()
    except Enough:
        pass
    except SystemExit as left:
        error = left if watch.steps == 0 else None
    except Exception as failed:  # noqa: BLE001 - the script's, whatever it is: it goes into the answer
        error = failed
    finally:
        watch.remove()
    return Rehearsal(watch.features, arenas.persistent, arenas.ephemeral, watch.steps, error)


@contextmanager
def _harmless() -> Iterator[None]:
    """What fake tensors cannot do by themselves, and what must not happen: files of weights without weights."""
    loader = torch.utils.data.DataLoader.__init__

    def in_this_process(self: Any, *args: Any, **kwargs: Any) -> None:
        alone = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None, "timeout": 0}
        kwargs = {**kwargs, **{name: value for name, value in alone.items() if name in kwargs}}
        loader(self, *args, **kwargs)

    with ExitStack() as stack:
        for owner, name, stand_in in (
            (torch.utils.data.DataLoader, "__init__", in_this_process),
            (torch, "save", lambda *_, **__: None),
            (FakeTensorMode, "__deepcopy__", lambda self, _memo: self),  # a copied tensor is of the same mode
            (FakeTensor, "tolist", lambda self: plain(self).tolist()),
            (FakeTensor, "numpy", lambda self, **_: plain(self).numpy()),
            (FakeTensor, "__array__", lambda self, *args, **_: plain(self).numpy().__array__(*args)),
        ):
            stack.enter_context(patch.object(owner, name, stand_in, create=True))
        yield
