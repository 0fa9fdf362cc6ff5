"""What libraries have asked of the driver, and where their data points, is found: on the stub driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from carpool.runtime.native import library_path
from tests.tiers import all_but_first
from tools.gpu_check.checks import routes
from tools.gpu_check.scripts import PROGRAMS

Run = Callable[..., dict[str, Any]]
BEGUN = f"""
import ctypes, json, os, sys
from pathlib import Path
sys.path.append({os.fspath(PROGRAMS)!r})
import begun
from carpool.devices.cuda import driver
driver.start()
"""
#: A library that keeps a pointer.
KEEPS = "void *kept = &kept;\n"
KEPT = """
library = ctypes.CDLL(sys.argv[2])
ctypes.c_void_p.in_dll(library, "kept").value = begun.address_of(sys.argv[3], "libcuda") if len(sys.argv) > 3 else None
"""


@pytest.fixture
def run(root: Path, stub_machine: dict[str, str]) -> Run:
    def start(code: str, *arguments: str, **env: str) -> dict[str, Any]:
        command = [sys.executable, "-c", BEGUN + code, *arguments]
        own = stub_machine | env
        done = subprocess.run(command, cwd=root, env=own, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return start


@pytest.fixture
def asked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What `cuda.bindings` ask for."""
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path))
    own = {"LD_PRELOAD": os.fspath(routes.preloaded_log()), "QUERIES": os.fspath(tmp_path / "queries")}
    return lambda functions: run("print(json.dumps(begun.queries(Path(sys.argv[1]))))", os.fspath(functions), **own)


def test_queries_of_the_driver_are_written_down(asked: Run) -> None:
    found = asked(routes.FUNCTIONS)
    assert found["asked"] > 100
    assert not found["past"]


def test_a_form_of_a_call_that_the_gate_lacks_is_found(asked: Run, tmp_path: Path) -> None:
    functions = tmp_path / "functions.def"
    functions.write_text(
        "CP_WORK_PTSZ(cuStreamSynchronize, 2000, 7000, s, ())\nCP_HOOK(memory, cuLaunchKernel, 1, 0)\n"
    )
    assert [each.split()[0] for each in asked(functions)["past"]] == ["cuLaunchKernel"]


@pytest.mark.parametrize("call", all_but_first(["cuLaunchKernel", ""]))
def test_data_that_points_past_the_gate_is_found(call: str, run: Run, tmp_path: Path) -> None:
    source, library = tmp_path / "keeps.c", tmp_path / "libkeeps.so"
    source.write_text(KEEPS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"{KEPT}\nprint(json.dumps(begun.pointers(Path(sys.argv[1]))))"
    arguments = [os.fspath(routes.FUNCTIONS), os.fspath(library), *filter(None, [call])]
    found = run(code, *arguments, LD_PRELOAD=os.fspath(library_path()))
    assert found["past"] == ({f"libkeeps.so: {call}": 1} if call else {})
    assert found["into"] > 0


#: Launches that are one call each, and a call that submits nothing.
COUNTED = """
import counted
device = driver.call("cuDeviceGet", 0)
driver.call("cuCtxSetCurrent", driver.call("cuDevicePrimaryCtxRetain", device))
module = driver.call("cuModuleLoadData", b"stub")
nop = driver.call("cuModuleGetFunction", module, b"nop")
before = counted.gate(), counted.driver(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    driver.call("cuLaunchKernel", nop, 1, 1, 1, 1, 1, 1, 0, 0, ((), ()), 0)
driver.call("cuCtxSynchronize")
after = counted.gate(), counted.driver(Path(sys.argv[1]))
print(json.dumps({"gate": after[0] - before[0], "driver": after[1] - before[1]}))
"""


def test_the_gate_counts_what_the_driver_is_asked_to_do(run: Run) -> None:
    found = run(COUNTED, os.fspath(routes.FUNCTIONS), "17", LD_PRELOAD=os.fspath(library_path()))
    assert found == {"gate": 17, "driver": 17}


def test_what_passes_the_gate_is_missing_in_its_count(run: Run) -> None:
    found = run(COUNTED, os.fspath(routes.FUNCTIONS), "17", LD_PRELOAD=os.fspath(library_path()), CARPOOL_DISABLE="1")
    assert found == {"gate": 0, "driver": 17}
