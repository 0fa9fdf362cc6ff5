"""The CUDA driver: the only module that imports ``cuda.bindings``, and only when the first call is made.

Not yet run on a GPU.
"""

from __future__ import annotations

import importlib
from typing import Any

from carpool.devices.base import DeviceError
from carpool.protocol.missing_package import extra_hint

_NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND


class NoDriver(DeviceError):
    """There is no driver on this machine, or no package to call it with."""


class DriverError(DeviceError):
    """A call failed.  ``function``, ``code`` and ``name`` as in the driver's documentation; ``text``: the driver's."""

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function}: {name} ({text})")
        self.function, self.code, self.name, self.text = function, code, name, text


def start() -> None:
    """Initialize the driver in this process.  Raises NoDriver, DriverError (no device, for example)."""
    try:
        status = bindings().cuInit(0)
    except RuntimeError as error:
        raise NoDriver(f"there is no NVIDIA driver: {error}") from None
    _results("cuInit", status)


def call(function: str, *arguments: object) -> Any:
    """Call the driver; return None, its one result, or a tuple of results.  Raises DriverError.

    A function that this driver does not have fails as ``CUDA_ERROR_NOT_FOUND``.
    """
    try:
        answer = getattr(bindings(), function)(*arguments)
    except RuntimeError as error:
        raise DriverError(function, _NOT_FOUND, "CUDA_ERROR_NOT_FOUND", str(error)) from None
    return _results(function, answer)


def bindings() -> Any:
    """Return the module with the driver's types and constants.  Raises NoDriver."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        if error.name in ("cuda", "cuda.bindings"):
            raise NoDriver(f"the package cuda-bindings is missing: {extra_hint('cuda')}") from None
        raise NoDriver(f"the package cuda-bindings cannot be loaded: {error}") from None


def version() -> int:
    """Return the version of CUDA that the driver is for (12090: 12.9).  Raises DriverError."""
    return int(call("cuDriverGetVersion"))


def has(function: str, version: int) -> bool:
    """Whether the driver has a function as of a version of CUDA (12080: 12.8)."""
    try:
        address, _ = call("cuGetProcAddress", function.encode(), version, 0)
    except DriverError:
        return False
    return bool(int(address))


def _results(function: str, answer: tuple[Any, ...]) -> Any:
    status, *results = answer
    if int(status):
        raise DriverError(function, int(status), *_words(status))
    return results[0] if len(results) == 1 else tuple(results) or None


def _words(status: Any) -> tuple[str, str]:
    """Return the driver's name and text of an error."""
    words = []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        failed, word = getattr(bindings(), function)(status)
        words.append(word.decode() if not int(failed) and word else f"error {int(status)}")
    return words[0], words[1]
