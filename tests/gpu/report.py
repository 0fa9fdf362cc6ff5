"""What ran, where, and how it went: for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path

from carpool.devices.base import DeviceError
from carpool.devices.cuda import driver
from tests.gpu.runner import Result

TITLES = {"check": "Checks on a GPU", "bench": "Measured on a GPU"}
ROOT = Path(__file__).resolve().parents[2]


def line(result: Result) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result.figures.items())
    last = "".join(result.text.splitlines()[-1:])
    return f"{result.outcome:8} {result.title}: {figures or last}".removesuffix(": ")


def write(results: list[Result], directory: Path, kind: str) -> Path:
    """``kind``: check or bench.  Returns the Markdown file."""
    where = describe()
    directory.mkdir(parents=True, exist_ok=True)
    day = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d-%H%M")
    path = directory / f"{day}-{where['device'].replace(' ', '-')}-{kind}.md"
    text = json.dumps({"where": where, "results": [asdict(result) for result in results]}, indent=1)
    path.with_suffix(".json").write_text(text + "\n")
    rows = "\n".join(f"| {result.title} | {result.outcome} | {_cell(result)} |" for result in results)
    machine = "\n".join(f"- {name}: {value}" for name, value in where.items())
    path.write_text(f"# {TITLES[kind]}\n\n{machine}\n\n| check | outcome | |\n| --- | --- | --- |\n{rows}\n")
    return path


def describe() -> dict[str, str]:
    """The device, the driver, PyTorch, the machine and the source."""
    return {
        "device": _device(),
        "driver": _driver(),
        "torch": _torch(),
        "machine": f"{os.cpu_count()} CPUs, {platform.release()}, Python {platform.python_version()}",
        "source": _commit(),
    }


def _cell(result: Result) -> str:
    text = ", ".join(f"{name} {value:.4g}" for name, value in result.figures.items()) or result.text
    return " ".join(text.split()).replace("|", "\\|")


def _device() -> str:
    try:
        driver.start()
        name = driver.call("cuDeviceGetName", 256, driver.call("cuDeviceGet", 0))
    except DeviceError:
        return "none"
    return str(name.split(b"\0")[0].decode(errors="replace"))


def _driver() -> str:
    """The CUDA version of the driver, as 12.8."""
    try:
        version = int(driver.call("cuDriverGetVersion"))
    except DeviceError as error:
        return str(error)
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _torch() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
