"""`tools/emulator/run`: a script on emulated GPUs, and what is said of options that mean nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import emulated
from tools.emulator.environment import VENV

RUN = Path(__file__).resolve().parents[3] / "tools" / "emulator" / "run"
SCRIPT = """
import torch
device = torch.device("cuda", torch.cuda.device_count() - 1)
print(torch.arange(10, device=device).sum().item(), device, torch.cuda.get_device_properties(device).total_memory)
"""


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    environment = emulated.clean() | {"EMULATED_GPU_VENV": str(VENV)} | more
    command = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_script_computes_on_emulated_gpus(tmp_path: Path) -> None:
    emulated.need()
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = run("--gpus", 2, "--memory", "128MiB", "--", "python", script)
    assert (done.returncode, done.stdout) == (0, f"45 cuda:1 {128 << 20}\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "128", "--", "true"], "--memory 128: say a size such as 512MiB or 2GiB"),
        (["--gpus", "17", "--", "true"], "--gpus 17: between 1 and 16 GPUs can be emulated"),
        (["--gpu-memory", "1GiB", "--", "true"], "unrecognized arguments: --gpu-memory"),
        (["--", "no-such-program"], "no-such-program: there is no such program"),
        ([], "the following arguments are required: command"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: list[str], said: str) -> None:
    emulated.need()
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_without_the_environment_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = run("--", "true", EMULATED_GPU_VENV=str(tmp_path))
    assert done.returncode == 2
    assert f"there is no emulated GPU in {tmp_path}: run `make emulated-gpu` first" in done.stderr


@pytest.mark.parametrize(("command", "status"), [("exit 86", 86), ("kill -ABRT $$", 134)])
def test_the_status_is_that_of_the_program_as_a_shell_says_it(command: str, status: int) -> None:
    emulated.need()
    assert run("--", "sh", "-c", command).returncode == status
