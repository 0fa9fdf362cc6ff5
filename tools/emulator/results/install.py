"""Putting the CPU's results in the place of what an emulated GPU does not compute, in this process."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .at_exit import wait_for_backward_passes
from .device import EmulatedDevice
from .graphs import Graphs
from .operator import Operator
from .substitutes import COMPUTED_FIRST, SUBSTITUTES

#: They have one kernel for all devices, which launches the device's own.
FOR_ALL_DEVICES = ("aten::copy_",)
#: Registrations live as long as these.
_libraries: list[torch.library.Library] = []


def install() -> None:
    """Override every operator of PyTorch's own that has a CUDA kernel.  Once per process; cuDNN is off from then on.

    Raises OSError or AttributeError where the driver is not the emulated one.
    """
    device = EmulatedDevice()
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they say what we do: that kernels are overridden
        for name in (*torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"), *FOR_ALL_DEVICES):
            if name.startswith("aten::"):
                _override(library, device, overload(name))
    Graphs(device).install()
    torch.backends.cudnn.enabled = False
    atexit.register(wait_for_backward_passes)
    _libraries.append(library)


def overload(name: str) -> torch._ops.OpOverload:
    """Of a name like ``aten::add.Tensor``."""
    packet, _, kind = name.removeprefix("aten::").partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), kind or "default")
    return found


def _override(library: torch.library.Library, device: EmulatedDevice, found: torch._ops.OpOverload) -> None:
    name = found._schema.name.removeprefix("aten::")
    operator = Operator(device, found, _substitute(found, SUBSTITUTES[name]) if name in SUBSTITUTES else found)
    first = name in COMPUTED_FIRST and not found._schema.is_mutable
    call = operator.computed_first if first else operator.kernel_first
    library.impl(found, call, "CUDA", with_keyset=True, allow_override=True)


def _substitute(found: torch._ops.OpOverload, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Without the tensors that the caller wants results in: these are written afterwards, as all results are."""
    given = {each.name for each in found._schema.arguments if each.is_out}
    if not given:
        return compute
    return lambda *args, **kwargs: compute(*args, **{name: kwargs[name] for name in kwargs.keys() - given})
