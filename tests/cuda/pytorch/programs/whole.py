"""Run a public script, and compare all that it has trained: ``whole.py RESULT SCRIPT ARGUMENT...``.

The script is unmodified; what its optimizers have changed and remembered is looked at when it has ended.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch
from common import again, digest, finish, meet, state_of
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

PUBLIC = Path(__file__).parents[4] / "benchmarks" / "workloads" / "public"


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def run(name: str, arguments: list[str]) -> None:
    result, optimizers = sys.argv[1], dict[int, Optimizer]()

    def stepped(optimizer: Optimizer, *_: object) -> None:
        optimizers[id(optimizer)] = optimizer
        again()

    register_optimizer_step_post_hook(stepped)
    script = PUBLIC / f"{name}.py"
    sys.path.insert(0, str(PUBLIC))
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
    sys.argv = [str(script), result]
    weights = [parameter for optimizer in optimizers.values() for parameter in parameters_of(optimizer)]
    state = [tensor for optimizer in optimizers.values() for tensor in state_of(optimizer)]
    finish(weights=digest(weights), state=digest(state), tensors=[len(weights), len(state)])


if __name__ == "__main__":
    meet()
    torch.backends.cuda.enable_flash_sdp(False)  # the emulated GPU does not compute the dropout of these two kernels
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.manual_seed(0)  # for scripts that do not choose one
    run(sys.argv[2], sys.argv[3:])
