"""Computes by copies and fills alone and prints a digest: ``copies.py MIB ITERATIONS [FIFO]``.

No kernel is needed for it, so it runs on the stub driver, too.  Its memory is that of a program without PyTorch's
allocator: all of it persistent.  What an iteration leaves depends on all that were before.  After the first one it
waits until somebody has opened the FIFO for writing.
"""

from __future__ import annotations

import hashlib
import sys

import torch  # noqa: F401 - how a job of Carpool attaches

import carpool
from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice

SIZE, ITERATIONS, FIFO = int(sys.argv[1]) << 20, int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
PLACES = 16


def main() -> None:
    driver.start()
    stream = DriverDevice(0).stream()
    front, back = (int(driver.call("cuMemAlloc", SIZE)) for _ in range(2))
    driver.call("cuMemsetD32Async", front, 1, SIZE // 4, stream)
    part = SIZE // PLACES
    for number in range(ITERATIONS):
        with carpool.iteration():
            for place in range(PLACES):
                target = (place * 5 + number) % PLACES
                driver.call("cuMemcpyDtoDAsync", back + target * part, front + place * part, part, stream)
            driver.call("cuMemsetD32Async", back + number % PLACES * part, number, part // 8, stream)
            driver.call("cuStreamSynchronize", stream)
            front, back = back, front
        if number == 0 and FIFO is not None:
            open(FIFO).close()
    content = bytearray(SIZE)
    driver.call("cuMemcpyDtoH", content, front, SIZE)
    print(hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    main()
