"""NVIDIA's libraries, loaded with libcarpool over the emulated driver: no hooked call of theirs is past the gate.

They refuse this driver, to which a table of the real one is unknown (`cuGetExportTable`).  By then they have looked up
all that they call: by ELF symbols, dlsym, or cuGetProcAddress in a runtime of their own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY
from tests.native.test_functions import entries
from tests.vendor.wheels import HERE, LIBRARIES, library, need, requirements

#: With the function that makes a handle, and how many hooked functions the library's own table has at least.
LIBRARY_S = {
    "libcublas.so.13": ("cublasCreate_v2", 120),
    "libcublasLt.so.13": ("cublasLtCreate", 120),
    "libcusolver.so.12": ("cusolverDnCreate", 120),
    "libcusparse.so.12": ("cusparseCreate", 120),
    "libcufft.so.12": ("cufftPlan1d", 10),
    "libcudnn.so.9": ("cudnnCreate", 120),
}
STAYS = "tests/vendor/test_runtimes.py::test_each_form_that_a_runtime_gets_of_a_hooked_name_has_a_wrapper"


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("scan") / "scan"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", HERE / "scan.c", "-o", program], check=True)
    return program


def pointers(scan: Path, name: str, function: str, stub_driver: Path, state: Path) -> Iterator[tuple[str, str]]:
    """Where each function lies, `gate` or `driver`, and its name."""
    folders = [need(wheel) for wheel in requirements(LIBRARIES)]
    (path,) = [library(folder, name) for folder in folders if any(folder.rglob(name))]
    places = {str(found.parent) for folder in folders for found in folder.rglob("lib*.so*")}
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join([str(stub_driver.parent), *sorted(places)]),
        "LD_PRELOAD": str(LIBRARY),
        "EMULATOR_STATE": str(state),
    }
    done = subprocess.run([scan, path, function], env=environment, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith(("gate ", "driver ")):
            where, symbol = line.split()
            yield where, symbol


@pytest.mark.nightly("loads NVIDIA's libraries", stays=STAYS)
@pytest.mark.parametrize("name", LIBRARY_S)
def test_no_hooked_call_of_a_library_is_past_the_gate(name: str, scan: Path, stub_driver: Path, tmp_path: Path) -> None:
    function, least = LIBRARY_S[name]
    found = set(pointers(scan, name, function, stub_driver, tmp_path / "gpu"))
    assert {symbol for where, symbol in found if where == "driver"} & set(entries()) == set()
    assert len({symbol for where, symbol in found if where == "gate"} & set(entries())) >= least
    assert sum(where == "driver" for where, _ in found) > 40
