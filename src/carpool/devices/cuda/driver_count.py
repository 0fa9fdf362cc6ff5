"""Count the GPUs that NVIDIA's driver has for this process: ``python -I -S .../driver_count.py``.

Prints the number, or 0 and the driver's error behind it.  A process of its own, because a driver may hang or crash;
standard library only, so that GPUs are found before `carpool[cuda]` has been installed.
"""

from __future__ import annotations

import ctypes
import sys

#: CUDA_ERROR_STUB_LIBRARY (of a container without the driver) and CUDA_ERROR_NO_DEVICE.
_NONE = (34, 100)


def main() -> int:
    """Print the count, and return the exit status; a driver's error is not a failure of this program."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print(0)
        return 0
    count = ctypes.c_int()
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    print(*((0,) if error in _NONE else (0, error) if error else (count.value,)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
