"""What a step leaves besides its result: what its daemons, its jobs, the driver and the kernel have said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Bytes of a file: its end counts.
MOST = 1 << 20
DMESG_S = 2.0
HOMES, DRIVER, FOUND = "carpool-gpu-*", "cuda*.log", "found-"


def found(name: str) -> Path:
    """A file for what a step has found besides figures."""
    return Path(tempfile.gettempdir(), f"{FOUND}{name}")


@contextmanager
def best_effort() -> Iterator[None]:
    """No result is lost because there is no room for what comes with it."""
    try:
        yield
    except OSError as error:
        print(f"evidence is missing: {error}", file=sys.stderr)


@best_effort()
def keep(scratch: Path, into: Path) -> None:
    """Homes of daemons with their logs and journals, also those of steps that have passed, and the driver's words."""
    for home in scratch.glob(HOMES):
        shutil.copytree(home, into / home.name, ignore=_not_files, copy_function=_copy_end, dirs_exist_ok=True)
    for log in scratch.glob(DRIVER):
        if log.stat().st_size:
            _copy_end(log, into / log.name)
    for each in scratch.glob(f"{FOUND}*"):
        _copy_end(each, into / each.name.removeprefix(FOUND))


def driver_words(kept: Path) -> str:
    """What the driver has said last of a call that failed; empty before version 575."""
    lines = [line for log in sorted(kept.rglob(DRIVER)) for line in log.read_text(errors="replace").splitlines()]
    return lines[-1] if lines else ""


@contextmanager
def watched(into: Path) -> Iterator[None]:
    """``nvidia-smi -q`` runs beside the step and costs it no time; lines of the kernel about the GPU come after it."""
    with best_effort():
        into.mkdir(parents=True, exist_ok=True)
        _start(["nvidia-smi", "-q"], into / "nvidia-smi.txt")
    try:
        yield
    finally:
        write(into / "xid.txt", _xid())


@best_effort()
def write(path: Path, text: str) -> None:
    path.write_text(text)


def _start(command: list[str], into: Path) -> None:
    with into.open("w") as said:
        try:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        except OSError as error:
            said.write(f"{error}\n")


def _xid() -> str:
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=DMESG_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    lines = done.stdout.splitlines() if not done.returncode else [f"dmesg: {done.stderr.strip()}"]
    return "".join(f"{line}\n" for line in lines if done.returncode or "Xid" in line)


def _not_files(directory: str, names: list[str]) -> set[str]:
    """Sockets and FIFOs, which cannot be copied."""
    paths = {name: Path(directory, name) for name in names}
    return {name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())}


def _copy_end(source: str | Path, target: str | Path) -> None:
    into = Path(target)
    into.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MOST))
        into.write_bytes(file.read())
