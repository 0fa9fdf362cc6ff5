"""Programs without Python on a GPU: they attach by themselves, and share it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from carpool.core.model import MIB
from carpool.protocol.api import JobInfo
from tests.cuda.rig import Bare, Daemon, Program, clean_environment
from tests.live import PATIENCE_S
from tests.native.arbiter import ROOT
from tests.tiers import all_but_first

#: The program needs more than half of the `small` device, and the first of these jobs does, too.
WEIGHTS_MIB = 24
PROGRAM = f"native {WEIGHTS_MIB} 20"
LARGE, LARGE_KNOWN = (
    "train --weights 20 --iterations 4 --seed 1",
    {"persistent_bytes": 24 * MIB, "ephemeral_bytes": 8 * MIB},
)
OTHER, KNOWN = "train --weights 1 --iterations 4 --seed 1", {"persistent_bytes": 4 * MIB, "ephemeral_bytes": 4 * MIB}


class Native(Program):
    BINARY: ClassVar[Path]

    def command(self, out: Path) -> list[str]:
        return [str(self.BINARY), str(out), *self.arguments]


def compiled(directory: Path, driver: Path, *more: str) -> Path:
    source, output = Program.DIRECTORY / "native.c", directory / "native"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'src' / 'native'}", *more]
    command = [*shlex.split(os.environ.get("CC") or "cc"), *flags, str(source), str(driver), "-o", str(output)]
    subprocess.run(command, check=True)
    return output


@pytest.fixture(scope="module")
def native(stub_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> type[Native]:
    binary = compiled(tmp_path_factory.mktemp("native"), stub_driver)
    return type("Compiled", (Native,), {"BINARY": binary})


@pytest.fixture
def early(stub_driver: Path, tmp_path: Path) -> type[Native]:
    """The same in the constructor of a library, which runs before that of libcarpool."""
    library = compiled(tmp_path, stub_driver, "-DEARLY", "-fPIC", "-shared", "-Wl,-Bsymbolic").rename(
        tmp_path / "libnative.so"
    )
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed"]
    command += [str(library), str(stub_driver), f"-Wl,-rpath,{tmp_path}", "-o", str(tmp_path / "native")]
    subprocess.run(command, input="int main(void) { return 1; }", text=True, check=True)
    return type("Early", (Native,), {"BINARY": tmp_path / "native"})


class Both:
    """The daemon, and what jobs compute without it."""

    def __init__(self, daemon: Daemon, bare: Bare, alone: int) -> None:
        self._daemon, self._bare, self._alone = daemon, bare, alone

    def compute(self, native: Native, other: str, known: dict[str, int], **request: Any) -> JobInfo:
        """A native program waits in the middle while another job computes; return what it was then."""
        job = self._daemon.submit_script(native, meet=True, **request)
        waiting = self._daemon.meeting.arrive(1)
        assert self._daemon.submit(other, **known).result()["digest"] == self._bare.digest(Program.named(other))
        info = job.info()
        self._daemon.meeting.go(waiting)
        assert job.result() == {"digest": self._alone}
        return info


@pytest.fixture(scope="module")
def alone(native: type[Native], stub_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """What the program computes without Carpool."""
    directory = tmp_path_factory.mktemp("alone")
    stub = {"EMULATOR_STATE": str(directory / "state"), "LD_LIBRARY_PATH": str(stub_driver.parent)}
    command = native.named(PROGRAM).command(directory / "out")
    subprocess.run(command, env=clean_environment() | stub, check=True, timeout=PATIENCE_S)
    digest: int = json.loads((directory / "out").read_text())["digest"]
    return digest


@pytest.fixture
def both(small: Daemon, bare: Bare, alone: int) -> Both:
    return Both(small, bare, alone)


@pytest.mark.parametrize("how", all_but_first(["", "launcher", "helper"]))
def test_a_native_program_is_offloaded(both: Both, native: type[Native], how: str) -> None:
    info = both.compute(native.named(f"{PROGRAM} {how}"), LARGE, LARGE_KNOWN)
    assert info.moved.out_bytes >= WEIGHTS_MIB * MIB and info.alone is None


def test_a_job_with_a_native_helper_is_alone_while_the_helper_lives(
    small: Daemon, bare: Bare, native: type[Native], tmp_path: Path
) -> None:
    """As a decoder of a data loader, say.  It waits for the test in the middle, and its job when it has ended."""
    program, out = "train --seed 7 --iterations 20 --meet 3", tmp_path / "helper"
    helper = shlex.join(native.named("native 4 20").command(out))
    job = small.submit(program, meet=True, env={"HELPER": helper})
    waiting = small.meeting.arrive(1)
    small.until(lambda: job.info().alone == "several of its processes use the device")
    small.meeting.go(waiting)
    waiting = small.meeting.arrive(1)
    small.until(lambda: job.info().alone is None)
    assert small.submit(OTHER, **KNOWN).result()["digest"] == bare.digest(Program.named(OTHER))
    small.meeting.go(waiting)
    assert job.result()["digest"] == bare.digest(Program.named(program))
    assert job.info().alone is None


def test_a_native_engine_has_a_seat(both: Both, native: type[Native]) -> None:
    info = both.compute(native.named(PROGRAM), OTHER, KNOWN, service=100, engine=True)
    assert info.persistent_bytes >= WEIGHTS_MIB * MIB and info.alone is None


def test_a_program_that_computes_before_libcarpool_has_started(both: Both, early: type[Native]) -> None:
    info = both.compute(early.named(PROGRAM), OTHER, KNOWN)
    assert info.persistent_bytes >= WEIGHTS_MIB * MIB and info.alone is None
