"""Run a script, and say how many bytes of tensors it had alive at most: ``peak.py SCRIPT ARGUMENT...``.

By PyTorch's own profiler, not by Carpool.  The last line of the output is the figure; the script's own come before.
"""

from __future__ import annotations

import json
import runpy
import sys
from itertools import accumulate
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def main(script: str) -> None:
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        runpy.run_path(script, run_name="__main__")
    print(json.dumps({"peak_bytes": peak(profiler)}))


def peak(profiler: profile) -> int:
    """Bytes, from each allocation and each free in the order of time."""
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(size for _, size in changes), default=0)


if __name__ == "__main__":
    main(sys.argv[1])
