"""The first contact with a GPU, on the emulated one: PyTorch's CUDA build, and nothing that it does not bring along."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.environment import libraries_of, variables
from tests.gpu import plans, report, runner
from tests.gpu.daemon import NEEDED
from tests.gpu.plans import Range, Step
from tests.gpu.runner import FAILED, PASSED, SKIPPED, Result

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("EMULATED_GPU_VENV", ROOT / ".venv-emulated"))
#: `make gpu-packages` brings these, and PyTorch depends on the last one.
CARRIED = (
    "aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "attrs", "frozenlist", "idna", "msgspec", "multidict",
    "prometheus_client", "propcache", "pynvml", "yarl", "cuda",
)  # fmt: skip
WHERE = {"device": "A GPU", "driver": "CUDA 13.0"}
SLACK = 4


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


def contact(bare: dict[str, str], out: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Its exit status, what it has said, and the results by name."""
    command = [str(VENV / "bin" / "python"), "-m", "tests.gpu", "contact", f"--slack={SLACK}", f"--out={out}"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=bare, capture_output=True, text=True, timeout=800, check=False
    )
    results = json.loads(report.latest(out, "contact").read_text())["results"]
    return done.returncode, done.stdout + done.stderr, {each["name"]: each for each in results}


@pytest.mark.nightly(
    "PyTorch's CUDA build in two dozen processes: minutes", stays="test_contact_with_pytorch_as_it_comes"
)
@pytest.mark.parametrize("first", range(2))
def test_every_step_passes(first: int, bare: dict[str, str], tmp_path: Path) -> None:
    """Every other step in each of two tests: all of them at once take longer than a test may."""
    calls = tmp_path / "unexpected"
    names = [step.name for step in plans.CONTACT][first::2]
    status, said, results = contact(bare | {"EMULATOR_UNEXPECTED": str(calls)}, tmp_path / "out", *names)
    assert status == 0, said
    assert list(results) == names
    assert {each["outcome"] for each in results.values()} == {PASSED}, said
    assert not calls.exists(), calls.read_text()


def test_contact_with_pytorch_as_it_comes(bare: dict[str, str], tmp_path: Path) -> None:
    """What a call of the driver breaks fails, and only that runs again."""
    names, out = ("needed_mechanisms", "driver_routes"), tmp_path / "out"
    status, said, results = contact(bare | {"EMULATOR_FAIL": "cuMemCreate=2"}, out, *names)
    assert (status, [results[name]["outcome"] for name in names]) == (1, [FAILED, PASSED]), said
    assert "CUDA_ERROR_OUT_OF_MEMORY" in results["needed_mechanisms"]["text"]
    assert "- needed_mechanisms FAILED: " in said
    status, said, again = contact(bare, out, "--only-failed", *names)
    assert (status, {name: again[name]["outcome"] for name in names}) == (0, dict.fromkeys(names, PASSED)), said
    assert again["driver_routes"]["text"].startswith("taken over from 2")
    assert again["driver_routes"]["figures"] == results["driver_routes"]["figures"]


def test_it_ends_within_eight_minutes() -> None:
    """The last check may begin when the least time is left, and is ended with its grace."""
    assert plans.CONTACT_S + 2 * runner.GRACE_S <= 480
    known = runner.load()
    assert all(step.name in known and step.look and step.limit_s < 100 for step in plans.CONTACT)


def test_every_measurement_has_its_place() -> None:
    known = runner.load()
    assert set(plans.plan("bench", known)) == {name for name, each in known.items() if each.measures}
    assert set(plans.plan("check", known)).isdisjoint(plans.plan("bench", known))


def test_what_to_look_at(tmp_path: Path) -> None:
    steps = {name: Step(name, look="the docs", expected={"ms": Range(0, 2)}) for name in ("fast", "slow", "bad")}
    written = report.Report(tmp_path, "contact", WHERE, steps)
    written.add(Result("fast", "Fast", PASSED, figures={"ms": 2, "other": 9}))
    assert written.summary() == "1 passed. Nothing to look at."
    written.add(Result("slow", "Slow", PASSED, figures={"ms": 3}))
    assert "| Slow | passed |" in written.path.read_text()  # at once, not in the end
    written.add(Result("bad", "Bad", FAILED, "no memory", "the whole story"))
    written.add(Result("other", "Other", SKIPPED, "no time"))
    assert written.summary().splitlines() == [
        "2 passed, 1 FAILED, 1 skipped. Look at:",
        "- slow: ms 3, expected 0 to 2 (the docs)",
        "- bad FAILED: no memory (the docs)",
        "- other skipped: no time",
    ]
    assert "## bad\n\n```\nthe whole story\n```" in written.path.read_text()
    assert (written.passed, written.failed) == ({"fast", "slow"}, True)


def test_only_what_has_passed_is_taken_over(tmp_path: Path) -> None:
    earlier = report.Report(tmp_path, "contact", WHERE, {})
    earlier.add(Result("good", "Good", PASSED, figures={"ms": 1}))
    earlier.add(Result("bad", "Bad", FAILED, "no memory"))
    later = report.Report(tmp_path, "contact", WHERE, {})
    later.take_over(report.latest(tmp_path, "contact"))
    assert later.passed == set(later.results) == {"good"}
    with pytest.raises(FileNotFoundError, match="has no results of `bench`"):
        report.latest(tmp_path, "bench")
