"""A worker that is no job, and whose weights' memory is given: by its number and a path, both in the environment.

``TEST_MEMORY`` is ``NUMBER:PATH``, a descriptor of another process below `/proc`.
"""

from __future__ import annotations

import os
import sys

from carpool.serve import worker
from carpool.serve.model.weights_device import Plain

MEMORY = "TEST_MEMORY"


def main() -> int:
    number, _, path = os.environ[MEMORY].partition(":")
    device = Plain({int(number): os.open(path, os.O_RDWR)})
    worker.of_process = lambda: device
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
