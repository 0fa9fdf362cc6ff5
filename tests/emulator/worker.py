"""A process that uses the stub driver and does what its parent says: the other half of ``harness.Worker``.

Requests are Python texts over a SOCK_SEQPACKET socket, with descriptors; the answer is the JSON of the last expression,
or of the error.  The texts see ``driver`` (cuda.bindings), ``ok``, ``mapped`` and the received descriptors as ``fds``.
"""

from __future__ import annotations

import ast
import ctypes
import json
import socket
import sys
from typing import Any

from cuda.bindings import driver

PAGE = 2 << 20


def ok(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call; its error becomes an exception whose text is the error's name."""
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(answer[0].name)
    return answer[1] if len(answer) == 2 else answer[1:]


def begin(device: int = 0) -> None:
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(device))))))


def created(size: int, device: int = 0) -> Any:
    """A handle of physical memory that can be exported."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = device
    prop.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return ok(driver.cuMemCreate(size, prop, 0))


def exported(handle: Any) -> int:
    posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return int(ok(driver.cuMemExportToShareableHandle(handle, posix, 0)))


def imported(fd: int) -> Any:
    posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return ok(driver.cuMemImportFromShareableHandle(fd, posix))


def mapped(handle: Any, size: int, device: int = 0) -> int:
    address = ok(driver.cuMemAddressReserve(size, 0, 0, 0))
    ok(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemSetAccess(address, size, [access], 1))
    return int(address)


def fill(address: int, value: int, count: int = 1) -> None:
    """Write 32-bit values and wait until they are there."""
    ok(driver.cuMemsetD32(address, value, count))
    ok(driver.cuCtxSynchronize())


def word(address: int) -> int:
    """The 32-bit value there."""
    value = ctypes.c_uint32()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(value), address, 4))
    return value.value


def run(text: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "request", "exec"), names)
    return eval(compile(ast.Expression(last.value), "request", "eval"), names) if last else None


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    outgoing: list[int] = []
    names: dict[str, Any] = {**globals(), "share": outgoing.append, "fds": []}
    while True:
        text, received, _, _ = socket.recv_fds(channel, 65536, 8)
        if not text:
            return
        names["fds"] += received
        try:
            answer = {"value": run(text.decode(), names)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent wants to know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        socket.send_fds(channel, [json.dumps(answer, default=repr).encode()], outgoing)
        outgoing.clear()


if __name__ == "__main__":
    main()
