"""One operator of PyTorch on an emulated device: its CUDA kernel, and the CPU's, which writes the results."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from . import WRONG
from .aliases import on_device, tensors_in, to_cpu
from .computation import Computation
from .device import EmulatedDevice, Frame
from .generators import Drawing, default_generator

#: Written without a kernel, by copies and fills of the driver: a graph does them anew, in their order.
COPIES = {"aten::copy_", "aten::zero_", "aten::fill_", "aten::_foreach_copy_", "aten::_foreach_zero_"}


class Operator:
    """``compute``: the operator itself, called with arguments on the CPU, or what stands for it there."""

    def __init__(self, device: EmulatedDevice, overload: torch._ops.OpOverload, compute: Callable[..., Any]) -> None:
        self.overload = overload
        self._device = device
        self._compute = compute
        self._kernel = torch.library.get_kernel(overload, "CUDA")
        self._name = ctypes.c_char_p(str(overload).encode())
        self._address = ctypes.cast(self._name, ctypes.c_void_p).value
        arguments = overload._schema.arguments
        self._tensors = [str(each.type) in ("Tensor", "Optional[Tensor]") for each in arguments]
        self._places = {each.name: place for place, each in enumerate(arguments)}
        self._written = [each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write]
        self._changed = [name for name in self._written if not arguments[self._places[name]].kwarg_only]
        self._draws = torch.Tag.nondeterministic_seeded in overload.tags
        self._copies = overload._schema.name in COPIES
        self._computable = compute is not overload or _is_on_cpu(overload)

    def kernel_first(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """The CUDA kernel, with PyTorch's allocations and launches; then, if those compute nothing, the CPU's."""
        with self._device.lock:
            drawing = self._drawing(args, kwargs)
            with self._device.frame(self._address) as frame:
                result = self._kernel.call_boxed(keyset, *self._numbers_wrapped(args), **kwargs)
            mine = self._computable or frame.outermost
            if mine and (frame.own or (self._copies and self._device.capturing())):
                self._check(frame, args, kwargs)
                self._emulate(Computation(self._compute, *self._cpu_call(args, kwargs), result), drawing, args, kwargs)
            self._device.redone(frame, mine, self._storages(self._written, args, kwargs))
            return result

    def computed_first(self, _keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """For operators whose results' sizes depend on values: the CPU's kernel, then memory for what has come out."""
        with self._device.lock:
            if self._device.capturing():
                self._end("cannot be captured in a graph on an emulated GPU")
            device, found = self._index(args, kwargs), []
            self._device.do(device, lambda: found.append(self._values(args, kwargs)))
            return _on_device(found[0], torch.device("cuda", device))

    def _values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        args, kwargs = self._cpu_call(args, kwargs)
        try:
            return self._compute(*map(to_cpu, args), **{name: to_cpu(value) for name, value in kwargs.items()})
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no result
            self._end(_why(error))

    def _emulate(self, computation: Computation, drawing: Drawing | None, args: Any, kwargs: Any) -> None:
        recording = self._device.recording
        if not self._device.capturing():
            self._device.do(self._index(args, kwargs), lambda: self._checked(computation, drawing))
        elif recording is None:
            self._end("is captured in a graph that PyTorch does not know")
        else:
            place = len(recording) if self._draws else None
            recording.append(lambda first: self._checked(computation, None if place is None else first.in_graph(place)))

    def _checked(self, computation: Computation, drawing: Drawing | None) -> None:
        try:
            computation(drawing)
        except Exception as error:  # noqa: BLE001 - whatever it is, results would be wrong from here on
            self._end(_why(error))

    def _check(self, frame: Frame, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """What is changed twice would be wrong: an operator inside has written what the CPU's kernel begins with."""
        if frame.touched & self._storages(self._changed, args, kwargs):
            self._end(
                "writes its arguments partly by other operators, which the emulated GPU does not know how to redo"
            )

    def _end(self, why: str) -> NoReturn:
        """The process: none of its results could be trusted."""
        sys.stdout.flush()
        print(f"emulated GPU: {self.overload} {why}", file=sys.stderr, flush=True)
        os._exit(WRONG)

    def _drawing(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Drawing | None:
        """Before the CUDA kernel has counted its numbers."""
        if not self._draws or self._device.capturing():
            return None
        generator = self._argument("generator", args, kwargs)
        return Drawing.next_of(generator or default_generator(self._index(args, kwargs)))

    def _cpu_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Without the CUDA generator, which comes last where it stands among the positional arguments."""
        named = {name: value for name, value in kwargs.items() if name != "generator"}
        return args[: self._places.get("generator")], named

    def _argument(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        place = self._places.get(name, len(args))
        return kwargs.get(name) if place >= len(args) else args[place]

    def _storages(self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
        """Of the tensors in these arguments."""
        tensors = tensors_in([self._argument(name, args, kwargs) for name in names])
        return {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def _numbers_wrapped(self, args: Sequence[Any]) -> list[Any]:
        """Python's numbers in the place of tensors as tensors of no dimension that leave the result's type alone."""
        tensors = [each for each, wanted in zip(args, self._tensors, strict=False) if wanted]
        return [
            _wrapped(each, tensors) if wanted and isinstance(each, bool | int | float | complex) else each
            for each, wanted in zip(args, self._tensors, strict=False)
        ]

    def _index(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """The device's number."""
        for tensor in tensors_in([*args, *kwargs.values()]):
            if on_device(tensor):
                return int(tensor.device.index)
        device = self._argument("device", args, kwargs)
        return torch.cuda.current_device() if device is None or device.index is None else int(device.index)


def _is_on_cpu(overload: torch._ops.OpOverload) -> bool:
    """Whether the CPU has the operator: a kernel of its own, or one for all devices."""
    keys = "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"
    name = overload.name()
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _why(error: Exception) -> str:
    return f"cannot be computed on the CPU: {str(error).partition(chr(10))[0][:300]}"


def _wrapped(number: complex, beside: Sequence[Any]) -> torch.Tensor:
    tensors = [each for each in beside if isinstance(each, torch.Tensor)]
    other = next((each for each in reversed(tensors) if each.dtype is not torch.bool), tensors[0] if tensors else 0)
    kind = torch.result_type(other, number)
    try:
        return torch.tensor(number, dtype=kind)
    except (OverflowError, RuntimeError):  # the CPU's kernel says what comes of it
        return torch.zeros((), dtype=kind)


def _on_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return made.copy_(value)
    if isinstance(value, list | tuple):
        return type(value)(_on_device(each, device) for each in value)
    return value
