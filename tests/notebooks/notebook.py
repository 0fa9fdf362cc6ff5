"""A Jupyter notebook without its pages: a real kernel, spoken to through the public client library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager

PATIENCE_S = 90
KERNEL = "carpool"


def install_kernel(prefix: Path, python: str, environment: Mapping[str, str]) -> Path:
    """What `carpool kernel install` does; a directory for $JUPYTER_PATH."""
    carpool = shutil.which("carpool", path=str(Path(sys.executable).parent))
    assert carpool is not None, "make setup installs it"
    command = [carpool, "kernel", "install", "--python", python, "--prefix", str(prefix)]
    subprocess.run(command, env=dict(environment), check=True, capture_output=True)
    return prefix / "share" / "jupyter"


class Notebook:
    """One kernel.  Cells run one after another."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        patient = 2 * PATIENCE_S  # half of it until it gets a SIGTERM
        self._manager = KernelManager(kernel_name=KERNEL, shutdown_wait_time=patient)
        self._manager.start_kernel(env=dict(environment))
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)

    def run(self, cell: str) -> str:
        """Execute a cell; what it printed and its value, as text."""
        return self.end(self.begin(cell))

    def begin(self, cell: str) -> str:
        """Send a cell; the number to `end` it with."""
        message: str = self._client.execute(cell, allow_stdin=False)
        return message

    def end(self, message: str, *, fails: bool = False) -> str:
        """Wait until the cell has ended; what it printed, its value, or the name of the exception if it ``fails``."""
        texts = []
        while True:
            answer = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if answer["parent_header"].get("msg_id") != message:
                continue
            kind, content = answer["msg_type"], answer["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return "".join(texts).strip()
            if kind == "error" and not fails:
                raise AssertionError("\n".join(content["traceback"]))
            texts.append(_text(kind, content))

    def interrupt(self) -> None:
        """What the stop button does."""
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        """What the button for it does: another process, nothing of the old one's state."""
        self._manager.restart_kernel()
        self._client.wait_for_ready(timeout=PATIENCE_S)

    def close(self) -> None:
        if not self._manager.has_kernel:
            return
        self._client.stop_channels()
        self._manager.shutdown_kernel()
        self._manager.cleanup_resources()


def _text(kind: str, content: dict[str, Any]) -> str:
    if kind == "stream":
        return str(content["text"])
    if kind == "execute_result":
        return str(content["data"]["text/plain"])
    return str(content["ename"]) if kind == "error" else ""
