"""A model's structure without its weights: the module as its factory makes it, with tensors in given memory.

The factory runs unchanged, on the CPU, so values that it computes itself (positions, tables of rotations, masks) are
right, registered or not; on the meta device, the usual way, they would be lost.  Only the parameters are spared: their
memory is never touched, and no initial values are written into them.

Factories are found in the working directory after everything that is installed: files there, perhaps of another user,
never replace a part of PyTorch or of Carpool.
"""

from __future__ import annotations

import hashlib
import importlib
import mmap
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from carpool.protocol.missing_package import lacks
from carpool.serve.plan.manifest import SourceFile

#: Smallest tensor in bytes for which sparing its memory pays.
_LARGE = 64 << 10
#: Functions that write initial values, beside those of `torch.nn.init`.
_FIRST_VALUES = {"add_", "clamp_", "copy_", "erfinv_", "fill_", "mul_", "normal_", "uniform_", "zero_"}


class Unusable(ValueError):
    """The model cannot be served as it is; the text gives the reason and what to do."""


class Storage(NamedTuple):
    """Tensors that share memory; a tied weight is one tensor with several names."""

    tensors: tuple[Tensor, ...]
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """The storage's size in bytes."""
        return int(self.tensors[0].untyped_storage().nbytes())

    @property
    def address(self) -> int:
        """The address of its memory."""
        return int(self.tensors[0].untyped_storage().data_ptr())


def resolve(factory: str) -> Callable[[], nn.Module]:
    """Return the function that ``module:function`` names.  Raises Unusable."""
    module, _, name = factory.partition(":")
    if not (module and name):
        raise Unusable(f"{factory!r} is not a factory: write module:function")
    find_in_working_directory()
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise Unusable(f"the factory {factory} cannot be imported: {lacks(error.name, sys.executable)}") from error
    except ImportError as error:
        raise Unusable(f"the factory {factory} cannot be imported: {error}") from error
    if not callable(found):
        file = getattr(sys.modules[module], "__file__", None) or "built in"
        raise Unusable(f"the module {module} ({file}) has no function {name!r}")
    return found  # type: ignore[no-any-return]


def build(factory: Callable[[], nn.Module], seed: int, *, weights: bool) -> nn.Module:
    """Build the module, ready to compute without gradients.  Without ``weights`` its parameters have no values.

    The same seed gives the same module in every process.  Raises Unusable; exceptions of the factory pass through.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if weights:
            module = factory()
        else:
            with _Sparing():
                module = factory()
    if not isinstance(module, nn.Module):
        raise Unusable(f"the factory must return a torch.nn.Module, not a {type(module).__name__}")
    for name, tensor in _named(module):
        if nn.parameter.is_lazy(tensor):
            raise Unusable(f"{name} has no shape yet: the factory must run a lazy module once")
    return module.eval().requires_grad_(False)


class _Sparing(TorchFunctionMode):  # type: ignore[misc]
    """Gives parameters memory that stays untouched, and no values."""

    def __init__(self) -> None:
        super().__init__()
        self._parameters: dict[int, Tensor] = {}  # by address; kept, so that no address is reused

    def __enter__(self) -> Any:
        self._hook = register_module_parameter_registration_hook(self._registered)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hook.remove()

    def _registered(self, module: nn.Module, name: str, parameter: Tensor | None) -> None:
        with torch._C.DisableTorchFunction():
            if parameter is not None and not nn.parameter.is_lazy(parameter):
                self._parameters[parameter.data_ptr()] = parameter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty:
            return _empty(args, kwargs)
        if getattr(func, "__module__", "") == "torch.nn.init" or getattr(func, "__name__", "") in _FIRST_VALUES:
            target = args[0] if args else kwargs.get("tensor")
            if isinstance(target, Tensor) and target.data_ptr() in self._parameters:
                return target
        return func(*args, **kwargs)


def untouched(size: int) -> Tensor:
    """Return ``size`` bytes that take no memory until they are written, and then none of the job's device memory."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.uint8)


def _empty(args: Any, kwargs: Any) -> Tensor:
    """Make a tensor as `torch.empty` does, in `untouched` memory if it is large."""
    if torch.device(kwargs.get("device") or "cpu").type == "cpu" and "out" not in kwargs:
        like = torch.empty(*args, **{**kwargs, "device": "meta"})
        if like.layout is torch.strided and like.untyped_storage().nbytes() >= _LARGE:
            return _placed(untouched(like.untyped_storage().nbytes()), like).requires_grad_(like.requires_grad)
    return torch.empty(*args, **kwargs)


def _placed(memory: Tensor, like: Tensor) -> Tensor:
    """Return a tensor of the same shape in ``memory``, the bytes of a storage."""
    return torch.empty(0, dtype=like.dtype, device=memory.device).set_(
        memory.untyped_storage(), like.storage_offset(), like.size(), like.stride()
    )


def storages(module: nn.Module) -> list[Storage]:
    """Return the storages of the module's parameters and buffers, in the order of their names, without empty tensors.

    Raises Unusable for tensors that are not plain memory of the CPU.
    """
    found: dict[int, dict[int, Tensor]] = {}
    names: dict[int, list[str]] = {}
    for name, tensor in _named(module):
        _check(name, tensor)
        if address := tensor.untyped_storage().data_ptr():
            found.setdefault(address, {})[id(tensor)] = tensor
            names.setdefault(address, []).append(name)
    return [Storage(tuple(tensors.values()), tuple(names[address])) for address, tensors in found.items()]


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))


def _check(name: str, tensor: Tensor) -> None:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unusable(
            f"{name} is not a plain tensor on the CPU ({tensor.device}, {tensor.layout}): build the model there"
        )
    if type(tensor.data) is not Tensor:
        raise Unusable(f"{name} is a {type(tensor.data).__name__}, a tensor with its own rules, which cannot be moved")


def memory_of(storage: Storage) -> Tensor:
    """Return the storage's bytes: a tensor of uint8 in the same memory."""
    return torch.empty(0, dtype=torch.uint8).set_(storage.tensors[0].untyped_storage())


def bind(storage: Storage, memory: Tensor) -> None:
    """Place the storage's tensors in ``memory`` (uint8, as many bytes) from now on.  They stay the same objects.

    The memory may be on another device than the tensors, as with `Module.to`.
    """
    for tensor in storage.tensors:
        tensor.data = _placed(memory, tensor)


def signature(parts: Sequence[Storage]) -> str:
    """Return a text that is the same for modules whose storages have the same names, sizes and shapes."""
    lines = [
        f"{part.size} {part.names} "
        + " ".join(f"{t.dtype} {tuple(t.shape)} {t.stride()} {t.storage_offset()}" for t in part.tensors)
        for part in parts
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


_CARPOOL = str(Path(__file__).resolve().parents[2])


def find_in_working_directory() -> None:
    """Let factories be imported from the working directory, in a process that was started with ``-P``.

    Stops writing compiled files: Python uses an old compiled file for a source that was changed within the same second
    and has the same size.
    """
    directory = str(Path.cwd())
    if sys.flags.safe_path and directory not in sys.path:
        sys.dont_write_bytecode = True
        sys.path.append(directory)


def imported_code() -> tuple[SourceFile, ...]:
    """Return the Python files that this process has imported, without installed ones."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    installed = tuple(path + os.sep for path in _installed())
    own = sorted(file for file in files if file and file.endswith(".py") and not file.startswith(installed))
    return tuple(SourceFile(file, _digest(file)) for file in own)


def changed_file(files: Iterable[SourceFile]) -> str | None:
    """Return the first file whose content has changed, or None."""
    return next((file.path for file in files if _digest(file.path) != file.digest), None)


def _installed() -> set[str]:
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*standard, *site.getsitepackages(), site.getusersitepackages(), _CARPOOL}


def _digest(file: str) -> str:
    """Return the digest of a file's content; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
