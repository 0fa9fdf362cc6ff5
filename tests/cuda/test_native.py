"""Programs without Python on a GPU: they attach by themselves, and share it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest

from carpool.core.model import MIB
from tests.cuda.rig import Bare, Daemon, Program, clean_environment
from tests.live import PATIENCE_S
from tests.native.arbiter import ROOT
from tests.tiers import all_but_first

#: More than half of the `small` device, as the program is.
OTHER = "train --weights 20 --iterations 4 --seed 1"
KNOWN = {"persistent_bytes": 24 * MIB, "ephemeral_bytes": 8 * MIB}
WEIGHTS_MIB, ITERATIONS = 24, 20


class Native(Program):
    BINARY: ClassVar[Path]

    def command(self, out: Path) -> list[str]:
        return [str(self.BINARY), str(out), *self.arguments]


@pytest.fixture(scope="module")
def native(stub_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> type[Native]:
    binary = tmp_path_factory.mktemp("native") / "native"
    source = Program.DIRECTORY / "native.c"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'src' / 'native'}"]
    command = [*shlex.split(os.environ.get("CC") or "cc"), *flags, str(source), str(stub_driver), "-o", str(binary)]
    subprocess.run(command, check=True)
    return type("Compiled", (Native,), {"BINARY": binary})


@pytest.fixture(scope="module")
def alone(native: type[Native], stub_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """What the program computes without Carpool."""
    directory = tmp_path_factory.mktemp("alone")
    stub = {"EMULATOR_STATE": str(directory / "state"), "LD_LIBRARY_PATH": str(stub_driver.parent)}
    command = native("native", (str(WEIGHTS_MIB), str(ITERATIONS))).command(directory / "out")
    subprocess.run(command, env=clean_environment() | stub, check=True, timeout=PATIENCE_S)
    digest: int = json.loads((directory / "out").read_text())["digest"]
    return digest


@pytest.mark.parametrize("how", all_but_first(["job", "service", "launcher", "helper"]))
def test_a_native_program_takes_turns(small: Daemon, bare: Bare, native: type[Native], alone: int, how: str) -> None:
    given = (how,) if how in ("launcher", "helper") else ()
    script = native("native", (str(WEIGHTS_MIB), str(ITERATIONS), *given))
    engine = {"service": 100, "engine": True} if how == "service" else {}
    job = small.submit_script(script, meet=True, **engine)
    waiting = small.meeting.arrive(1)
    assert small.submit(OTHER, **KNOWN).result()["digest"] == bare.digest(Program.named(OTHER))
    small.meeting.go(waiting)
    assert job.result()["digest"] == alone
    info = job.info()
    assert info.moved.out_bytes >= WEIGHTS_MIB * MIB and info.switches >= 2 and info.alone is None
