"""A lease of a GPU, rehearsed on the emulated one: a copy of the tree, PyTorch's CUDA build, and nothing besides."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tools.emulator.environment import VENV, libraries_of, variables
from tools.gpu_check import plans
from tools.gpu_check.daemon import NEEDED
from tools.gpu_check.runner import FAILED, NOT_SEEN, PASSED

ROOT = Path(__file__).resolve().parents[2]
#: `make gpu-packages` brings these, and PyTorch depends on the last one.
CARRIED = (
    "aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "attrs", "click", "frozenlist", "idna", "msgspec", "multidict",
    "prometheus_client", "propcache", "pynvml", "safetensors", "yarl", "cuda",
)  # fmt: skip
SLACK = 4
#: Of a lease in which everything has to be done.
MINUTES = 12
#: Steps that are skipped without numpy.
NUMPY = ("serving_private_memory",)
#: A test has some of the steps: all of them take longer than a test may.
PARTS = 8


def test_what_is_carried_is_all_that_the_daemon_imports(root: Path, python: str) -> None:
    code = "import sys, carpool.daemon.__main__, carpool.daemon.app; print(*sys.modules)"
    environment = {"PATH": os.environ["PATH"]}  # whatever other tests have put onto the path of modules
    done = subprocess.run(
        [python, "-P", "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    found = {name.partition(".")[0] for name in done.stdout.split()}
    not_needed = {"carpool", "brotli", "cython_runtime", "sitecustomize", "typing_extensions"} | sys.stdlib_module_names
    assert {name for name in found - not_needed if not name.startswith("_")} <= set(CARRIED)
    assert set(NEEDED) <= set(CARRIED)


@pytest.fixture
def bare(root: Path, tmp_path: Path) -> dict[str, str]:
    """Variables of processes there.  numpy is hidden: the emulated GPU has it, and PyTorch does not bring it along."""
    if not libraries_of(VENV).is_dir():
        pytest.fail(
            f"there is no emulated GPU in {VENV}: run `make emulated-gpu` (0.5 GB from the package index, once)"
        )
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in CARRIED:
        found = importlib.util.find_spec(name)
        assert found is not None, name
        origin = Path(found.origin) if found.origin else Path(*found.submodule_search_locations or ())
        source = origin.parent if origin.name == "__init__.py" else origin
        (packages / source.name).symlink_to(source)
    (packages / "numpy.py").write_text("raise ModuleNotFoundError('there is no numpy here', name='numpy')\n")
    own = {"PYTHONPATH": f"{root / 'src'}:{packages}", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    return variables(VENV, "1GiB", tmp_path / "gpu", {"PATH": os.environ["PATH"]}) | own


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """What is copied to the GPU's machine."""
    tree = tmp_path / "copy"
    for name in ("src", "tests", "tools", "benchmarks"):
        shutil.copytree(
            root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "results", "build", "corpus")
        )
    return tree


class Lease(NamedTuple):
    status: int
    said: str
    results: dict[str, Any]


@pytest.fixture
def lease(bare: dict[str, str], copy: Path) -> Callable[..., Lease]:
    def run(out: Path, *names: str, minutes: float = MINUTES, **env: str) -> Lease:
        options = [f"--slack={SLACK}", f"--minutes={minutes}", f"--out={out}"]
        command = [str(VENV / "bin" / "python"), "-m", "tools.gpu_check", "lease", *options, *names]
        own = bare | {"PYTHONPATH": bare["PYTHONPATH"].replace(f"{ROOT / 'src'}", f"{copy / 'src'}")} | env
        done = subprocess.run(command, cwd=copy, env=own, capture_output=True, text=True, timeout=800, check=False)
        results = json.loads((out / "results.json").read_text())["results"]
        return Lease(done.returncode, done.stdout + done.stderr, {each["name"]: each for each in results})

    return run


def outcomes(done: Lease) -> dict[str, str]:
    return {name: result["outcome"] for name, result in done.results.items()}


@pytest.mark.nightly(
    "PyTorch's CUDA build in two dozen processes: minutes",
    stays="test_what_has_failed_is_tried_again_where_it_is_mended",
)
@pytest.mark.parametrize("first", range(PARTS))
def test_every_step_is_green(first: int, lease: Callable[..., Lease], tmp_path: Path) -> None:
    calls = tmp_path / "unexpected"
    names = [step.name for step in plans.LEASE][first::PARTS]
    done = lease(tmp_path / "out", *names, EMULATOR_UNEXPECTED=str(calls))
    assert done.status == 0, done.said
    assert list(done.results) == names
    assert all(outcome in {PASSED, NOT_SEEN} or name in NUMPY for name, outcome in outcomes(done).items()), done.said
    assert not calls.exists(), calls.read_text()


def test_what_has_failed_is_tried_again_where_it_is_mended(lease: Callable[..., Lease], tmp_path: Path) -> None:
    names, out = ("needed_mechanisms", "driver_routes"), tmp_path / "out"
    done = lease(out, *names, EMULATOR_FAIL="cuMemCreate=2")
    assert (done.status, outcomes(done)) == (1, dict(zip(names, (FAILED, PASSED), strict=True))), done.said
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.results[names[0]]["text"]
    assert done.results[names[0]]["text"].endswith("[cuMemCreate] out of memory")
    again = lease(out, *names)
    assert (again.status, outcomes(again)) == (0, dict.fromkeys(names, PASSED)), again.said
    assert again.results[names[1]] == done.results[names[1]]
