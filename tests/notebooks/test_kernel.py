"""`carpool kernel install`, and what the kernel does under a notebook's buttons and beside another job."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from carpool.cli.commands.integration.kernel import command
from carpool.protocol.api import SubmitRequest
from carpool.protocol.client import DaemonClient

if TYPE_CHECKING:
    from tests.notebooks.notebook import Notebook

#: More than half of the device.
TABLE = "import torch; table = torch.arange(56 << 18, dtype=torch.int32)"
PATIENCE_S = 60.0


def test_an_idle_notebook_holds_no_device_and_is_interrupted_once(
    client: DaemonClient, new_notebook: Callable[[], Notebook], home: Path
) -> None:
    notebook = new_notebook()
    (job,) = client.jobs()
    assert (job.name, job.phase) == ("notebook", "running")
    notebook.run(TABLE)

    # Another job needs the memory, gets it at once, and the notebook has everything afterwards.
    other = client.submit(SubmitRequest([sys.executable, "-c", f"{TABLE}\ntable.add_(1)"], str(home), dict(os.environ)))
    assert client.wait(other, PATIENCE_S).outcome == "succeeded"
    assert client.job(job.id).moved.out_bytes >= 56 << 20
    assert notebook.run("int(table[:1000].sum())") == str(sum(range(1000)))

    # The stop button, and the kernel goes on.
    begun = home / "begun"
    for _ in range(3):
        cell = notebook.begin(f"open({str(begun)!r}, 'w').close(); __import__('time').sleep(600)")
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        notebook.interrupt()
        assert "KeyboardInterrupt" in notebook.end(cell, fails=True)
        assert notebook.run("int(table[1])") == "1"
        begun.unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--python", "no-such-python"], "there is no interpreter no-such-python"),
        (["--python", "/bin/false"], "/bin/false has no ipykernel"),
    ],
)
def test_an_interpreter_that_will_not_do(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(command, ["install", "--prefix", str(tmp_path), *arguments])
    assert said in str(result.exception)
    assert not (tmp_path / "share").exists()


def test_where_a_kernel_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "own"))
    words = ["install", "--python", sys.executable, "--name", "Torch-2", "--home", str(tmp_path / "home")]
    assert CliRunner().invoke(command, words).output == f"kernel torch-2: {tmp_path}/own/kernels/torch-2\n"
    written = (tmp_path / "own" / "kernels" / "torch-2" / "kernel.json").read_text()
    assert f'"--home",\n  "{tmp_path}/home"' in written
    assert '"display_name": "Python (torch-2)"' in written
