"""A Jupyter notebook without its pages: a real kernel, spoken to through the public client library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager

PATIENCE_S = 90
KERNEL = "carpool"


def install_kernel(directory: Path, documented: str, commands: Mapping[str, str]) -> None:
    """The kernel that the docs describe, below a directory of $JUPYTER_PATH; ``commands`` are its programs' paths."""
    specification = json.loads(documented)
    specification["argv"] = [commands.get(part, part) for part in specification["argv"]]
    target = directory / "kernels" / KERNEL
    target.mkdir(parents=True)
    (target / "kernel.json").write_text(json.dumps(specification))


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
