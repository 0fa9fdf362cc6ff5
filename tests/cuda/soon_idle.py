"""Runs a daemon whose agents let go of an idle GPU at once: ``soon_idle.py PYTHON -m carpool.daemon ARGUMENTS...``.

Tests wait for that.  Seconds, as an agent takes otherwise, show no more.
"""

from __future__ import annotations

import functools
import runpy
import sys

from carpool.daemon.config import device_choice

LINGER_S = 0.05


def main(arguments: list[str]) -> None:
    device_choice.AgentLink = functools.partial(device_choice.AgentLink, linger_s=LINGER_S)  # type: ignore[assignment,misc]
    module, sys.argv = arguments[2], arguments[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
