"""Rules for all tests: none touches the user's own daemon, and randomness can be repeated.

`tests/leftovers.py` and `tests/tiers.py` have more of them.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import examples, libraries

pytest_plugins = ["tests.leftovers", "tests.tiers"]

ROOT = Path(__file__).resolve().parent.parent
LEAN = ROOT / "tests" / "lean"
#: Of what tests draw at random; CI has one of its own, all other runs look for new cases.
SEED, SEED_OF_CI = "CARPOOL_TEST_SEED", 16


def pytest_configure(config: pytest.Config) -> None:
    # No test depends on how fast a machine is.  Where a change is judged (CI) everybody's is by the same examples; all
    # other runs look for new ones.
    profile = examples.ALL if config.option.tier == "all" else examples.FEWER
    settings.register_profile(profile, deadline=None, derandomize=bool(os.environ.get("CI")))
    settings.load_profile(profile)
    for name in ("CARPOOL_JOB", "CARPOOL_JOB_FD", "CARPOOL_JOB_PID"):
        os.environ.pop(name, None)
    if config.option.tier == "all":  # what daemons have open from the start (`tests/daemon/forked.py`)
        os.environ.setdefault("CARPOOL_TEST_DESCRIPTORS", "1100")
    os.umask(0o022)  # a daemon refuses a state directory that others may write to


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is imported is garbage: looking for some meanwhile takes a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    _keep_what_is_imported()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Also of PyTorch, which those tests import that use it."""
    if "torch" in sys.modules:
        _onednn_is_on()
        _keep_pytorch()


def _onednn_is_on() -> None:
    if not sys.modules["torch"].backends.mkldnn.enabled:
        raise pytest.UsageError("a module of the tests switches oneDNN off when it is imported: results differ then")


@functools.cache
def _keep_pytorch() -> None:
    _keep_what_is_imported()


def _keep_what_is_imported() -> None:
    """It is no garbage: not looking there makes each later search ten times as fast."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _environment(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that forgets to name a state directory gets an empty one, never the user's.

    A daemon that starts without naming its devices takes the GPUs that there are: here only those of a test.  What
    tests start loads PyTorch without what most scripts never call, except in `make test-all`.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("CARPOOL_HOME", str(request.getfixturevalue("tmp_path_factory").mktemp("home")))
    patch.setenv("CUDA_VISIBLE_DEVICES", "")
    if request.config.option.tier != "all":
        patch.setenv("PYTHONPATH", str(LEAN), prepend=os.pathsep)
    yield
    patch.undo()


@pytest.fixture
def whole_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose processes compile, export or use tensors without data: these load all of PyTorch."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in path if part != str(LEAN)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Property tests parse source code.  If garbage of an earlier test is collected in the middle of that, and the end
    of it is reported with a traceback, CPython 3.11 parses again within the first parse, and raises SystemError.
    """
    if item.get_closest_marker("hypothesis") is None:
        return (yield)
    gc.collect()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture
def moments() -> random.Random:
    """For tests that hold whatever the moment is: what it gives depends on a seed, which is said when a test fails."""
    drawn = SEED_OF_CI if os.environ.get("CI") else random.SystemRandom().randrange(1 << 32)
    seed = int(os.environ.get(SEED, drawn))
    print(f"to repeat it: {SEED}={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def stub_driver() -> Path:
    """The stub of NVIDIA's driver.  Its directory goes into LD_LIBRARY_PATH of processes that are to use it."""
    return libraries.driver()


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    """The stub of NVML; it says what a test writes into its values (`tests/emulator/nvml/values.py`)."""
    return libraries.nvml()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
