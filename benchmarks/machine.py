"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tools.emulator.environment import VENV


def describe() -> dict[str, str | int]:
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "system": _pretty_name(),
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "torch_of_emulated_gpu": _emulated_torch(),
        "compiler": _compiler(),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def slug(text: str) -> str:
    """For file names: ``Intel(R) Xeon(R) Processor @ 2.80GHz`` -> ``intel-xeon-processor-2-80ghz``."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", text.lower())).strip("-")


def _pretty_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _compiler() -> str:
    command = os.environ.get("CC") or "cc"
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout.splitlines()[0] if result.returncode == 0 else "none"


def _emulated_torch() -> str:
    """Of the environment that `make emulated-gpu` makes."""
    found = VENV.glob("lib/python*/site-packages/torch-*.dist-info")
    return next((path.name.removeprefix("torch-").removesuffix(".dist-info") for path in found), "none")
