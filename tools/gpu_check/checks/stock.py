"""PyTorch's own allocator and its libraries behave as they do without Carpool."""

from __future__ import annotations

import json

from tools.gpu_check.daemon import daemon
from tools.gpu_check.registry import Needs, check, require
from tools.gpu_check.scripts import needs_cuda, run

PROGRAM = "stock.py"


@check("statistics, out-of-memory exception, cudnn.benchmark and record_stream are those of stock PyTorch", Needs.TORCH)
def stock_behaviour() -> None:
    needs_cuda()
    expected = json.loads(run(PROGRAM, preload=False))
    require(expected["out of memory"] == "OutOfMemoryError", f"without Carpool: {expected['out of memory']}")
    require(expected["cudnn.benchmark"] and expected["record_stream"], f"wrong without Carpool: {expected}")
    with daemon() as shared:
        found = json.loads(shared.output(shared.submit(PROGRAM)))
    wrong = [name for name, value in expected.items() if found[name] != value]
    require(not wrong, f"another one as a job: {', '.join(f'{name}: {found[name]}' for name in wrong)}"[:1500])
