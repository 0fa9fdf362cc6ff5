"""What ran, where, and how it went: for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from carpool.devices.base import DeviceError
from carpool.devices.cuda import driver
from tools.gpu_check.plans import Step
from tools.gpu_check.runner import FAILED, PASSED, Result

TITLES = {"lease": "A lease of a GPU", "check": "Checks on a GPU", "bench": "Measured on a GPU"}
NO_DEVICE = "none"
ROOT = Path(__file__).resolve().parents[2]


class ElsewhereError(Exception):
    """Results of another machine are not to be mixed with those of this one."""


class Report:
    """Results of a run, by name.  Both files are written anew after each, so that what is known stays known."""

    def __init__(self, path: Path, command: str, where: dict[str, str], steps: dict[str, Step]) -> None:
        self.path, self.steps = path, steps
        self.results: dict[str, Result] = {}
        self._title, self._where = TITLES[command], where
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def passed(self) -> set[str]:
        return {name for name, result in self.results.items() if result.outcome == PASSED}

    @property
    def failed(self) -> bool:
        return any(result.outcome == FAILED for result in self.results.values())

    def take_over(self) -> None:
        """What is in the file.  Raises ElsewhereError: the results are of another GPU, or of another driver."""
        try:
            found = json.loads(self.path.with_suffix(".json").read_text())
        except FileNotFoundError:
            return
        here, there = ([where[name] for name in ("device", "driver")] for where in (self._where, found["where"]))
        if NO_DEVICE not in (here[0], there[0]) and here != there:
            raise ElsewhereError(f"{self.path.parent} has results of {', '.join(there)}; this is {', '.join(here)}")
        self._where = found["where"] if here[0] == NO_DEVICE else self._where
        results = ({name: value for name, value in each.items() if name != "expected"} for each in found["results"])
        self.results = {each["name"]: Result(**each) for each in results}

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        results = [asdict(each) | {"expected": self._expected(each)} for each in self.results.values()]
        text = json.dumps({"where": self._where, "results": results}, indent=1)
        _write(self.path.with_suffix(".json"), f"{text}\n")
        _write(self.path, self._page(list(self.results.values())))

    def _page(self, results: list[Result]) -> str:
        rows = "\n".join(f"| {self._expected(each)} | {each.outcome} | {_cell(each)} |" for each in results)
        machine = "\n".join(f"- {name}: {value}" for name, value in self._where.items())
        table = f"| expected | outcome | found, or the reason |\n| --- | --- | --- |\n{rows}"
        details = "".join(f"\n## {each.name}\n\n```\n{each.details.strip()}\n```\n" for each in results if each.details)
        return f"# {self._title}\n\n{machine}\n\n{self.summary()}\n\n{table}\n{details}"

    def _expected(self, result: Result) -> str:
        ranges = self._step(result).expected.items()
        return "; ".join([result.title, *(f"{name} {least:g} to {most:g}" for name, (least, most) in ranges)])

    def summary(self) -> str:
        """What to look at, and where, the riskiest first."""
        counts = Counter(each.outcome for each in self.results.values())
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        points = [point for each in self.results.values() for point in self._points(each)]
        return "\n".join([f"{said}. {'Look at:' if points else 'Nothing to look at.'}", *points])

    def _points(self, result: Result) -> list[str]:
        step = self._step(result)
        if result.outcome == PASSED:
            return [f"- {result.name}: {each} ({step.look})" for each in step.unexpected(result.figures)]
        look = f" ({step.look})" if step.look and result.outcome == FAILED else ""
        return [f"- {result.name} {result.outcome}: {result.text}{look}"]

    def _step(self, result: Result) -> Step:
        return self.steps.get(result.name, Step(result.name))


def dated(directory: Path, command: str, device: str) -> Path:
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d-%H%M%S")
    return directory / f"{now}-{device.replace(' ', '-')}-{command}.md"


def line(result: Result) -> str:
    what = _figures(result) or result.text
    return f"{result.outcome:8} {result.seconds:5.1f} s  {result.title}: {what}".removesuffix(": ")


def describe() -> dict[str, str]:
    """The device, the driver, PyTorch, the machine and the source."""
    return {
        "device": _device(),
        "driver": _driver(),
        "torch": _torch(),
        "machine": f"{os.cpu_count()} CPUs, {platform.release()}, Python {platform.python_version()}",
        "source": _commit(),
    }


def _write(path: Path, text: str) -> None:
    """Whoever reads it, at any moment, finds all of a text."""
    new = path.with_name(f"{path.name}.tmp")
    new.write_text(text)
    new.replace(path)


def _cell(result: Result) -> str:
    return " ".join(f"{_figures(result)} {result.text}".split()).replace("|", "\\|")


def _figures(result: Result) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in result.figures.items())


def _device() -> str:
    try:
        driver.start()
        name = driver.call("cuDeviceGetName", 256, driver.call("cuDeviceGet", 0))
    except DeviceError:
        return NO_DEVICE
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
