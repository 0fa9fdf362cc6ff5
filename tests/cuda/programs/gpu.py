"""The CUDA driver for the programs of this directory: through ctypes, as it comes."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence

MIB = 1 << 20
OUT_OF_MEMORY = 2
_SIZES = {4: ctypes.c_uint32, 8: ctypes.c_uint64}
_KERNELS = {"mix_u64": (8, 8, 8), "fill_u32": (8, 4, 8), "add_u32": (8, 8, 8, 8), "spin_us": (8,)}


class CudaError(Exception):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {code}")
        self.code = code


class Gpu:
    """A device (0, if no launcher says otherwise), its primary context, and the kernels of the stub driver."""

    def __init__(self, index: int | None = None) -> None:
        self.index = int(os.environ.get("TRAIN_DEVICE", "0")) if index is None else index
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._allocator = ctypes.CDLL(os.environ["STAND_IN_ALLOCATOR"])
        self.call("cuInit", 0)
        self._context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self.index)
        self.enter()
        self.call("cuModuleLoadData", ctypes.byref(module), b"stub")
        self.stream = ctypes.c_void_p()  # for launches: the default one
        self._functions = {}
        for name in _KERNELS:
            self._functions[name] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self._functions[name]), module, name.encode())

    def enter(self) -> None:
        """What this thread does from now on, it does on this device."""
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: object) -> None:
        self._checked(name, self._driver[name](*arguments))

    def segment(self, size: int) -> int:
        """Memory as PyTorch's allocator asks for it: once more if there was none, after giving back what it can."""
        try:
            return self.segment_at_once(size)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            return self.segment_at_once(size)

    def segment_at_once(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._checked("segment_alloc", self._allocator.segment_alloc(ctypes.byref(address), ctypes.c_size_t(size)))
        return address.value

    def free_segment(self, address: int) -> None:
        self._checked("segment_free", self._allocator.segment_free(ctypes.c_uint64(address)))

    def memory(self, size: int) -> int:
        """Memory as other libraries ask for it."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def captured(self, work: Callable[[], None]) -> ctypes.c_void_p:
        """A graph of the launches that `work` makes, ready to be launched in `stream`."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, 0)
        work()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        return ready

    def launch(self, kernel: str, *values: int) -> None:
        held = [_SIZES[size](value) for size, value in zip(_KERNELS[kernel], values, strict=True)]
        parameters = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        one, zero = ctypes.c_uint(1), ctypes.c_uint(0)
        function, sizes = self._functions[kernel], (one, one, one, one, one, one, zero)
        self.call("cuLaunchKernel", function, *sizes, self.stream, parameters, None)

    def fill(self, address: int, size: int, value: int) -> None:
        self.launch("fill_u32", address, value, size // 4)

    def mix(self, address: int, size: int, seed: int) -> None:
        """Changes every word, depending on itself, its place and the seed: an order of runs of its own."""
        self.launch("mix_u64", address, size // 8, seed)

    def add(self, to: int, other: int, size: int) -> None:
        self.launch("add_u32", to, to, other, size // 4)

    def word(self, address: int) -> int:
        """Waits until everything is done, like `loss.item()`."""
        value = ctypes.c_uint64()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), ctypes.c_uint64(address), ctypes.c_size_t(8))
        return value.value

    def content(self, address: int, size: int) -> bytes:
        found = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return found.raw

    def digest(self, pieces: Sequence[tuple[int, int]]) -> str:
        """One hash over the content of pieces of memory."""
        total = hashlib.sha256()
        for address, size in pieces:
            total.update(self.content(address, size))
        return total.hexdigest()

    def free_bytes(self) -> int:
        """As the program is told."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def devices(self) -> list[str]:
        """The uuids of all that this process sees, as CUDA_VISIBLE_DEVICES names them."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return [self._uuid(index) for index in range(count.value)]

    def _uuid(self, index: int) -> str:
        uuid = ctypes.create_string_buffer(16)
        self.call("cuDeviceGetUuid_v2", uuid, index)
        text = uuid.raw.hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    @staticmethod
    def _checked(name: str, code: int) -> None:
        if code:
            raise CudaError(name, code)
