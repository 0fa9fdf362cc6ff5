"""Which blocks of device memory hold nothing but zeros, found on the device, which reads faster than any link.

A kernel marks such blocks.  Only what the kernel has marked counts, and only after the kernel has marked blocks of
known content rightly on this very device: where the kernel cannot be loaded, or is wrong, everything is copied.

Not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from carpool.devices.cuda.driver import DriverError, bindings, call
from carpool.devices.cuda.memory import DriverDevice

#: The unit in which zeros are left out, at multiples of its size in a store.
BLOCK = 256 << 10
#: In the driver's intermediate language, which each driver compiles for its device.  A thread looks at every 256th
#: vector of 16 bytes, up to the first one that is not zero; the first thread of each block writes the block's mark.
KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry carpool_find_zeros(.param .u64 data, .param .u64 marks, .param .u32 vectors, .param .u32 blocks)
{
  .reg .pred %more, %used, %any, %other;
  .reg .b32 %v<11>;
  .reg .b64 %a<5>;
  ld.param.u64 %a0, [data];
  ld.param.u64 %a1, [marks];
  cvta.to.global.u64 %a0, %a0;
  cvta.to.global.u64 %a1, %a1;
  ld.param.u32 %v0, [vectors];
  ld.param.u32 %v10, [blocks];
  mov.u32 %v1, %ctaid.x;
  mov.u32 %v2, %tid.x;
  mov.u32 %v3, %ntid.x;
  setp.ge.u32 %other, %v1, %v10;
  @%other bra end;
  mul.wide.u32 %a2, %v1, %v0;
  cvt.u64.u32 %a3, %v2;
  add.u64 %a2, %a2, %a3;
  shl.b64 %a2, %a2, 4;
  add.u64 %a2, %a2, %a0;
  mul.wide.u32 %a4, %v3, 16;
  mov.u32 %v4, 0;
  mov.u32 %v5, %v2;
next:
  setp.ge.u32 %other, %v5, %v0;
  @%other bra done;
  ld.global.v4.u32 {%v6, %v7, %v8, %v9}, [%a2];
  or.b32 %v6, %v6, %v7;
  or.b32 %v8, %v8, %v9;
  or.b32 %v4, %v6, %v8;
  add.u64 %a2, %a2, %a4;
  add.u32 %v5, %v5, %v3;
  setp.eq.u32 %more, %v4, 0;
  @%more bra next;
done:
  setp.ne.u32 %used, %v4, 0;
  bar.red.or.pred %any, 0, %used;
  setp.ne.u32 %other, %v2, 0;
  @%other bra end;
  selp.b32 %v6, 2, 1, %any;
  mul.wide.u32 %a3, %v1, 4;
  add.u64 %a3, %a3, %a1;
  st.global.u32 [%a3], %v6;
end:
  ret;
}
"""
_NAME = b"carpool_find_zeros"
_THREADS = 256
_VECTOR = 16
#: The kernel's mark of a block of zeros; blocks with another one have other content, those without one are not known.
_ALL_ZERO = 1
#: Blocks that the kernel looks at in one launch, and bytes of each that are looked at first.
_MOST = 1024
_SAMPLE = 16
#: The kernel has to wait for the device's compute time, so less than one such part of zeros is not worth a launch.
_WORTH = 16
#: The trial: blocks in host memory, and the byte of each that is not zero, if any.
_TRIAL_BLOCK = 16 << 10
_TRIAL = (None, 0, _TRIAL_BLOCK - 1, _TRIAL_BLOCK // 2 + 5, None)
_OUT_OF_MEMORY = 2


def whole_blocks(begin: int, end: int) -> range:
    """Return the numbers of the blocks that lie within two offsets of a store."""
    return range(-(-begin // BLOCK), end // BLOCK)


def split(begin: int, end: int, zero: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (begin, end, whether zero) of the parts of a range; ``zero``: a flag for each of its `whole_blocks`."""
    first = whole_blocks(begin, end).start
    place = 0
    while place < len(zero):
        after = zero.find(1 - zero[place], place)
        after = len(zero) if after < 0 else after
        if zero[place]:
            if begin < (first + place) * BLOCK:
                yield begin, (first + place) * BLOCK, False
            begin = (first + after) * BLOCK
            yield (first + place) * BLOCK, begin, True
        place = after
    if begin < end:
        yield begin, end, False


class ZeroFinder:
    """Finds blocks of zeros in one device's memory.  ``off``: finds none."""

    def __init__(self, gpu: DriverDevice, *, off: bool = False) -> None:
        self._gpu = gpu
        self._off = off
        self._kernel: Any = None
        self._host = 0  # pinned: marks, samples, and the blocks of the trial

    def find(self, address: int, count: int) -> bytes:
        """Return a flag for each of ``count`` blocks from an address on: 1 if it holds nothing but zeros, 0 if unknown.

        Waits for all work of the device's stream; raises DriverError if that fails.  Without the kernel all is unknown;
        short of memory for the kernel, the next call tries again.
        """
        try:
            return self._find(address, count)
        except DriverError as error:
            if error.function == "cuStreamSynchronize":
                raise  # the context may be unusable
            self._off, self._kernel = error.code != _OUT_OF_MEMORY, None
            return bytes(count)

    def close(self) -> None:
        """Give everything back that the context has; `find` makes it anew."""
        if self._host:
            call("cuMemFreeHost", self._host)
        self._host, self._kernel = 0, None

    def _find(self, address: int, count: int) -> bytes:
        if not self._off and self._kernel is None:
            self._start()
        if self._off:
            return bytes(count)
        sizes = [min(_MOST, count - done) for done in range(0, count, _MOST)]
        return b"".join(self._look(address + number * _MOST * BLOCK, size) for number, size in enumerate(sizes))

    def _look(self, address: int, count: int) -> bytes:
        return self._marked(address, BLOCK, count) if self._worthwhile(address, count) else bytes(count)

    def _worthwhile(self, address: int, count: int) -> bool:
        """Whether so many blocks begin with zeros that the kernel may save time."""
        driver, copy = bindings(), bindings().CUDA_MEMCPY2D()
        copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcDevice, copy.srcPitch = driver.CUdeviceptr(address), BLOCK
        copy.dstHost, copy.dstPitch = self._host + 4 * _MOST, _SAMPLE
        copy.WidthInBytes, copy.Height = _SAMPLE, count
        call("cuMemcpy2DAsync", copy, self._gpu.stream())
        self._gpu.wait()
        samples = ctypes.string_at(self._host + 4 * _MOST, _SAMPLE * count)
        zero = sum(not any(samples[at : at + _SAMPLE]) for at in range(0, len(samples), _SAMPLE))
        return zero > count // _WORTH

    def _marked(self, address: int, size: int, count: int) -> bytes:
        """Have the kernel look at ``count`` blocks of ``size`` bytes."""
        ctypes.memset(self._host, 0, 4 * count)
        values = (address, self._host, size // _VECTOR, count)
        types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
        stream = self._gpu.stream()
        call("cuLaunchKernel", self._kernel, count, 1, 1, _THREADS, 1, 1, 0, stream, (values, types), 0)
        self._gpu.wait()
        marks = (ctypes.c_uint32 * count).from_address(self._host)
        return bytes(mark == _ALL_ZERO for mark in marks)

    def _start(self) -> None:
        self._gpu.stream()
        if not self._host:
            size = (4 + _SAMPLE) * _MOST + _TRIAL_BLOCK * len(_TRIAL)
            self._host = int(call("cuMemHostAlloc", size, bindings().CU_MEMHOSTALLOC_DEVICEMAP))
        self._kernel = call("cuModuleGetFunction", call("cuModuleLoadData", KERNEL + b"\0"), _NAME)
        if not self._tried():
            self._off, self._kernel = True, None

    def _tried(self) -> bool:
        """Whether the kernel marks blocks of known content rightly, in host memory, which the device reads as well."""
        place = self._host + (4 + _SAMPLE) * _MOST
        ctypes.memset(place, 0, _TRIAL_BLOCK * len(_TRIAL))
        for number, byte in enumerate(_TRIAL):
            if byte is not None:
                ctypes.memset(place + number * _TRIAL_BLOCK + byte, 1, 1)
        return self._marked(place, _TRIAL_BLOCK, len(_TRIAL)) == bytes(byte is None for byte in _TRIAL)
