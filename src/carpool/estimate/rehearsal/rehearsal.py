"""A training job's first iterations over fake tensors: its own code, its own shapes, none of its bytes.

The order in which memory of tensors is made and dropped, as a script or a loop runs over fake tensors.

PyTorch has a tracker itself (``torch.distributed._tools.mem_tracker.MemTracker``), which sums live bytes by kind and
module.  A lane's size follows from the order of the requests, which decides how far up the arena reaches (see
`rehearsal.arenas`), and from memory inside operators (see `rehearsal.scratch`), which no mode sees.  So this
is a mode of our own; the technique, weak references to storages, is the same.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from carpool.estimate.base import Features
from carpool.estimate.rehearsal.arenas import Arenas
from carpool.estimate.rehearsal.scratch import Scratch
from carpool.estimate.rehearsal.standins import stand_ins
from carpool.estimate.rehearsal.values import Values, tensors_in
from carpool.estimate.rehearsal.watch import STEPS, Enough, Watch

_READ_VALUE = torch.ops.aten._local_scalar_dense.default


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A mode that records requests for memory; to be entered inside a `FakeTensorMode`."""

    def __init__(self, arenas: Arenas) -> None:
        super().__init__()
        self._arenas, self._scratch, self.values = arenas, Scratch(), Values()
        self._known: dict[int, tuple[Any, int, int]] = {}  # address: weak reference, number, bytes
        self._numbers = itertools.count()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _READ_VALUE:
            return self.values.scalar(args[0])
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        made = tensors_in(result)
        self._account(made, self._scratch.within(func, args, kwargs))
        self.values.follow(func, args, kwargs, made)
        return result

    def _account(self, made: list[torch.Tensor], within: list[tuple[int, int]] | None) -> None:
        """Record a call's requests.  ``within``: slot and size of each, size 0 for a free; slots below 0: results."""
        temporary: dict[int, int] = {}
        for slot, size in within or ():
            if slot < 0:
                self._see(made[-1 - slot])
            elif size:
                temporary[slot] = next(self._numbers)
                self._arenas.made(temporary[slot], size)
            else:
                self._arenas.dropped(temporary.pop(slot))
        for tensor in made:
            self._see(tensor)
        for number in temporary.values():
            self._arenas.dropped(number)

    def _see(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        known = self._known.get(address)
        if known is not None and known[0]() is storage:
            if known[2] == size:
                return
            self._arenas.dropped(known[1])  # resized
        number = next(self._numbers)
        self._known[address] = weakref.ref(storage, lambda _: self._gone(address, number)), number, size
        self._arenas.made(number, size)

    def _gone(self, address: int, number: int) -> None:
        if self._known.get(address, (None, -1, 0))[1] == number:
            del self._known[address]
        self._arenas.dropped(number)


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator consists of others: `torch.inference_mode` passes it whole, else PyTorch takes it apart."""
    key = "CompositeImplicitAutograd"
    return func.namespace != "prim" and bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


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
