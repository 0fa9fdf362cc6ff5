"""Which tests run when, how much each may take, and what a run took: ``pytest --tier check|test|all``.

`make check` runs the folders below that begin there, `make test` all but what is marked ``nightly``, `make test-all`
everything.  A test that takes more than its tier allows fails.  The tables of `tests/TIERS.md` are drawn from here.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.parts import PYTHON_PARTS

TESTS = Path(__file__).resolve().parent
#: Every test that is marked ``nightly``, written by `make nightly-list`.
LIST = TESTS / "nightly.txt"


@dataclass(frozen=True)
class Tier:
    """What one test may take, set-up and tear-down included.

    ``cpu_s`` is processor time, of the processes too that the test has waited for: it hardly depends on what else the
    machine does, and is about three times what the dearest test needs.  After ``wall_s`` a test is ended wherever it
    is; a test that waits for its processes needs several times as long on a busy machine, and gets it.  ``--slack``
    multiplies both: some machines need 2.6 times the processor time of the one that the limits are from.
    """

    cpu_s: float
    wall_s: float


#: The part that has the tests of the tests, and collects all of them.
RULES = "core"
TIERS = {"check": Tier(10.0, 30.0), "test": Tier(45.0, 90.0), "all": Tier(300.0, 900.0)}


class Folder(NamedTuple):
    """The first tier that has the folder's tests, the part of `make test-all` (`tests/parts.py`), and two budgets.

    ``budget_s`` is what workers may spend on all of them in `make test`, and ``cpu_s`` what of that may be processor
    time, of the processes too that tests have waited for: the difference is time in which a test waits.
    """

    first: str
    part: str
    budget_s: int
    cpu_s: int


#: Folders and files of `tests`; the longest that fits counts.
FOLDERS = {
    "adversary": Folder("test", "daemon", 30, 1),
    "benchmarks": Folder("test", "cli", 38, 25),
    "cli": Folder("test", "cli", 133, 27),
    "cli/test_reference.py": Folder("check", "core", 1, 1),
    "conformance": Folder("check", "core", 13, 9),
    "containers": Folder("test", "elsewhere", 10, 10),
    "core": Folder("check", "core", 44, 36),
    "corpus": Folder("check", "core", 9, 4),
    "cuda": Folder("test", "gpu", 91, 32),
    "cuda/pytorch": Folder("test", "gpu", 60, 37),
    "daemon": Folder("test", "daemon", 296, 74),
    "dashboard": Folder("test", "cli", 98, 10),
    "demo": Folder("test", "cli", 24, 14),
    "devices": Folder("test", "gpu", 41, 37),
    "docs": Folder("check", "core", 3, 3),
    "e2e": Folder("test", "jobs", 253, 127),
    "equivalence": Folder("check", "core", 15, 11),
    "estimate": Folder("check", "core", 12, 10),
    "facts": Folder("check", "core", 2, 2),
    "faults": Folder("test", "daemon", 6, 1),
    "fuzz": Folder("test", "daemon", 1, 1),
    "gpu_check": Folder("test", "gpu", 26, 19),
    "kubernetes": Folder("test", "elsewhere", 14, 10),
    "telemetry": Folder("check", "core", 4, 4),
    "timeline": Folder("check", "core", 4, 4),
    "mutations": Folder("test", "gpu", 1, 1),
    "native": Folder("test", "jobs", 33, 26),
    "notebooks": Folder("test", "cli", 13, 10),
    "options": Folder("check", "core", 3, 3),
    "protocol": Folder("check", "core", 11, 3),
    "ray_cluster": Folder("test", "elsewhere", 23, 1),
    "ray_cluster/test_options.py": Folder("check", "core", 1, 1),
    "release": Folder("check", "elsewhere", 2, 2),
    "replay": Folder("check", "core", 8, 1),
    "runtime": Folder("test", "jobs", 25, 14),
    "serve": Folder("test", "jobs", 95, 91),
    "slurm": Folder("test", "elsewhere", 26, 26),
    "sim": Folder("check", "core", 38, 30),
    "soak": Folder("test", "daemon", 1, 1),
    "emulator": Folder("test", "gpu", 18, 12),
    "emulator/pytorch": Folder("test", "gpu", 23, 18),
    "vendor": Folder("test", "gpu", 1, 1),
    "test_class_names.py": Folder("check", "core", 2, 1),
    "test_of_module.py": Folder("check", "core", 1, 1),
    "test_parts.py": Folder("check", "core", 1, 1),
    "test_leftovers.py": Folder("test", "core", 2, 1),
    "test_mechanisms.py": Folder("check", "core", 1, 1),
    "test_plugins.py": Folder("check", "core", 1, 1),
    "test_tiers.py": Folder("check", "core", 4, 3),
    "test_working_directory.py": Folder("check", "core", 4, 3),
}


def folder_of(path: str) -> str:
    """``path``: below `tests`.  Raises LookupError for a folder that the table lacks."""
    fits = [name for name in FOLDERS if path == name or path.startswith(f"{name}/")]
    if not fits:
        raise LookupError(f"tests/{path} is in no folder of tests/tiers.py: add it there, with its tier and budget")
    return max(fits, key=len)


@dataclass(frozen=True)
class Nightly:
    """Why a test is in `make test-all` only, and which test of `make test` keeps the same promise.

    ``stays`` is a test's function, in the same file unless a path stands before it; by default the same function with
    other parameters.
    """

    reason: str
    stays: str


#: By programs that are PyTorch itself on the emulated GPU.
REPLACED = "with a program of our own what another test shows with PyTorch's CUDA build"
#: Of parameters that take seconds each.
RARER_WAY = "a rarer way into a state that another test reaches"
FAMILY = "a further member of a family of which another runs in `make test`"


def all_but_first(values: Iterable[Any], reason: str = FAMILY, *, stay: int = 1) -> list[Any]:
    """Parameters of a family, of which the first ``stay`` are in `make test` and the others in `make test-all` only.

    A tuple is the values of several arguments; as the value of one it stands in a pytest.param.
    """
    marked = pytest.mark.nightly(reason)
    return [value if number < stay else _marked(value, marked) for number, value in enumerate(values)]


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    """``value`` may be what pytest.param made."""
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, mark])
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=mark)


@dataclass(frozen=True)
class Collected:
    """A test as collected, whether its tier has it or not."""

    id: str
    function: str
    first: str
    part: str
    nightly: Nightly | None


ALL_TESTS = pytest.StashKey[list[Collected]]()
BEGAN, ENDED = pytest.StashKey[float](), pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=tuple(TIERS), default="all", help="which tests to run (default: all)")
    group.addoption("--part", choices=PYTHON_PARTS, help="run only what is in this part of `make test-all`")
    group.addoption("--slack", type=float, default=1.0, help="allow tests this many times as much (slow machine)")
    group.addoption("--write-nightly", action="store_true", help=f"write {LIST.name} anew (with --collect-only)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly(reason, stays=''): in `make test-all` only; another keeps its promise")
    config.addinivalue_line("markers", "slow: in a folder of `make check`, and in `make test` only")
    config.addinivalue_line("markers", "contents: of an emulated GPU, also where results cannot be computed")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` does not even import what it does not run: PyTorch takes seconds."""
    everything = config.option.tier != "check" and config.option.part in (None, RULES)
    if everything or TESTS not in collection_path.parents:
        return None
    path = collection_path.relative_to(TESTS).as_posix()
    return True if not any(_overlap(path, name) for name in FOLDERS if _wanted(FOLDERS[name], config)) else None


def _wanted(folder: Folder, config: pytest.Config) -> bool:
    return (config.option.tier != "check" or folder.first == "check") and config.option.part in (None, folder.part)


def _overlap(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.option.tier
    tests = [_collected(item) for item in items]
    config.stash[ALL_TESTS] = tests
    included = list(TIERS)[: list(TIERS).index(tier) + 1]
    runs = [test.first in included and config.option.part in (None, test.part) for test in tests]
    config.hook.pytest_deselected(items=[item for item, here in zip(items, runs, strict=True) if not here])
    items[:] = [item for item, here in zip(items, runs, strict=True) if here]
    timeout = pytest.mark.timeout(allowed(config).wall_s)
    for item in items:
        item.add_marker(timeout, append=False)
    if config.option.write_nightly:
        LIST.write_text("".join(listing(tests)))


def allowed(config: pytest.Config) -> Tier:
    """What one test may take in this run."""
    tier, slack = TIERS[config.option.tier], config.option.slack
    return Tier(tier.cpu_s * slack, tier.wall_s * slack)


def _collected(item: pytest.Item) -> Collected:
    folder = _folder_of_file(item.path)
    function = item.nodeid.partition("[")[0]
    marks = {mark.name: mark for mark in item.iter_markers() if mark.name in ("nightly", "slow")}
    if mark := marks.get("nightly"):
        return Collected(item.nodeid, function, "all", folder.part, _nightly(*mark.args, **mark.kwargs, item=item))
    return Collected(item.nodeid, function, "test" if marks else folder.first, folder.part, None)


@functools.cache
def _folder_of_file(path: Path) -> Folder:
    return FOLDERS[folder_of(path.relative_to(TESTS).as_posix())]


def _nightly(reason: str, *, stays: str = "", item: pytest.Item) -> Nightly:
    file, _, rest = item.nodeid.partition("::")
    if not stays:
        return Nightly(reason, f"{file}::{rest.partition('[')[0]}")
    return Nightly(reason, stays if "::" in stays else f"{file}::{stays}")


def listing(tests: Iterable[Collected]) -> Iterator[str]:
    """Lines of the list: a test's number and the reason why it is there."""
    yield "# Tests that run in `make test-all` only, and why.  Written by `make nightly-list`.\n"
    for reason, ids in sorted(by_reason(tests).items()):
        yield f"\n{reason}\n"
        yield from (f"    {name}\n" for name in sorted(ids))


def by_reason(tests: Iterable[Collected]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for test in tests:
        if test.nightly is not None:
            found.setdefault(test.nightly.reason, []).append(test.id)
    return found


# --- what each test takes ---------------------------------------------------------------------------------------------


def cpu_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[BEGAN] = cpu_s()
    return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """What ends with a module or a run has worked for other tests, too: it comes after this one's own."""
    if fixturedef.scope == "function":
        request.node.stash[ENDED] = cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    tier, limits = item.config.option.tier, allowed(item.config)
    if call.excinfo is not None and str(call.excinfo.value).startswith("Timeout (>"):  # pytest-timeout's
        report.sections.append(("tier", f"ended: a test of `{tier}` may take {limits.wall_s:g} s. {ADVICE}"))
    if call.when == "teardown":
        _judge(report, tier, limits.cpu_s, item.stash[ENDED] - item.stash[BEGAN])
    else:
        item.stash[ENDED] = cpu_s()
    return report


ADVICE = "Make it cheaper, or mark it nightly (tests/TIERS.md)."


def _judge(report: pytest.TestReport, tier: str, limit_s: float, used_s: float) -> None:
    """Keep what a test used, and fail it above its tier's budget."""
    report.user_properties.append(("cpu_s", f"{used_s:.2f}"))
    if used_s > limit_s and report.passed:
        report.outcome = "failed"
        text = f"a test of `{tier}` may use {limit_s:g} s"
        report.longrepr = f"{report.nodeid} used {used_s:.1f} s of processor time; {text}. {ADVICE}"


class Spent:
    """Seconds of workers and of processors that each folder has taken; said at the end of a run."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid.partition("::")[0].removeprefix("tests/"))
        self._seconds[folder] += report.duration  # type: ignore[assignment]
        if report.when == "teardown":
            self._cpu[folder] += float(dict(report.user_properties)["cpu_s"])  # type: ignore[assignment,arg-type]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds or (self._tier == "all" and len(self._seconds) < len(FOLDERS)):
            return  # nothing has run, or a few tests are tried
        terminalreporter.section(f"seconds of workers, and of processors, in `{self._tier}` (budgets in `make test`)")
        for name, seconds in sorted(self._seconds.items()):
            folder = FOLDERS[name]
            terminalreporter.write_line(_spent(name, seconds, folder.budget_s, self._cpu[name], folder.cpu_s))
        together = _spent("together", sum(self._seconds.values()), budget_s(), sum(self._cpu.values()), cpu_budget_s())
        terminalreporter.write_line(together)


def _spent(name: str, seconds: float, budget: int, cpu: float, cpu_budget: int) -> str:
    return f"{name:28}{seconds:8.1f} ({budget}){cpu:10.1f} ({cpu_budget})"


def budget_s() -> int:
    """Seconds of workers in `make test`."""
    return sum(folder.budget_s for folder in FOLDERS.values())


def cpu_budget_s() -> int:
    """Those of processors."""
    return sum(folder.cpu_s for folder in FOLDERS.values())


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Spent(session.config.option.tier), "spent")
