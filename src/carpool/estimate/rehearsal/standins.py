"""Stand-ins for functions that fail on fake tensors, or that must not run while a script is rehearsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.data import DataLoader

from carpool.estimate.rehearsal import conversion
from carpool.estimate.rehearsal.checkpoints import Checkpoints
from carpool.estimate.rehearsal.values import in_words, plain, presume

_ALONE = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None, "timeout": 0}


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace functions that a rehearsed script must not call by stand-ins, while the context lasts.

    Nothing is saved to files, checkpoints are loaded from memory, and data loaders start no processes.
    """
    checkpoints = Checkpoints()
    with ExitStack() as stack:
        for owner, name, stand_in in (
            *_of_safetensors(checkpoints),
            (DataLoader, "__init__", _in_this_process(DataLoader.__init__)),
            (torch, "save", checkpoints.save),
            (torch, "load", checkpoints.load),
            (torch, "isfinite", _finite(torch.isfinite)),
            (torch.nn.Module, "_apply", conversion.convert),
            (FakeTensorMode, "__deepcopy__", lambda self, _memo: self),  # a copied tensor is of the same mode
            (FakeTensor, "__deepcopy__", conversion.copied),
            (FakeTensor, "data", conversion.DATA),
            (torch.UntypedStorage, "data_ptr", conversion.address),
            (FakeTensor, "isfinite", _finite(torch.Tensor.isfinite)),
            (FakeTensor, "tolist", lambda self: plain(self).tolist()),
            (FakeTensor, "numpy", lambda self, **_: plain(self).numpy()),
            (FakeTensor, "__array__", lambda self, *args, **_: plain(self).numpy().__array__(*args)),
            (FakeTensor, "__format__", in_words),
        ):
            stack.enter_context(patch.object(owner, name, stand_in, create=True))
        yield


def _of_safetensors(checkpoints: Checkpoints) -> list[tuple[Any, str, Any]]:
    """Return stand-ins for functions of safetensors, which read a tensor's bytes at its address; none if missing."""
    with suppress(ImportError):
        import safetensors.torch as library

        load = library.load_file
        return [
            (library, "save_file", lambda tensors, filename, metadata=None: checkpoints.save(tensors, filename)),
            (library, "load_file", lambda filename, device="cpu": checkpoints.load_by(load, filename, device)),
        ]
    return []


def _in_this_process(make: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **{**kwargs, **{name: value for name, value in _ALONE.items() if name in kwargs}})

    return init


def _finite(check: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return an `isfinite` for which unknown numbers are finite: scripts end where a loss is not finite."""

    def isfinite(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = check(*args, **kwargs)
        presume(result, True)
        return result

    return isfinite
