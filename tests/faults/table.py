"""The table of faults: which call fails how, at each site that a scenario without faults has reached."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_
from typing import NamedTuple

from tests.faults.nursery import Nursery
from tests.faults.story import Fault, Story
from tests.homes import home_directory

#: How each call can fail.  "short": half of it is done.  "no descriptors": those that came with a packet are lost.
KINDS = {
    "open": ("EMFILE",),
    "open to write": ("ENOSPC", "EMFILE"),
    "read": ("EIO",),
    "pread": ("EIO",),
    "write": ("ENOSPC", "EIO", "short"),
    "pwrite": ("ENOSPC", "EIO", "short"),
    "sendfile": ("ENOSPC", "short"),
    "fsync": ("EIO", "ENOSPC"),
    "ftruncate": ("ENOSPC",),
    "posix_fallocate": ("ENOSPC",),
    **dict.fromkeys(("dup", "dup2", "pipe", "pipe2", "memfd_create", "pidfd_open"), ("EMFILE",)),
    **dict.fromkeys(("socket", "socketpair", "accept"), ("EMFILE",)),
    **dict.fromkeys(("mkdir", "rename", "replace", "bind"), ("ENOSPC",)),
    **dict.fromkeys(("unlink", "rmdir", "chmod", "chown", "fchown", "stat", "lstat", "fstat"), ("EIO",)),
    **dict.fromkeys(("listdir", "scandir", "lseek", "chdir", "fcntl"), ("EIO",)),
    **dict.fromkeys(("listen", "sendmsg", "recv", "recv_into", "getsockopt", "setsockopt"), ("ENOBUFS",)),
    "sqlite write": ("ENOSPC", "EIO", "EINTR", "short"),
    "sqlite read": ("EIO", "EINTR"),
    "sqlite fsync": ("EIO",),
    "sqlite truncate": ("EIO", "EINTR"),
    "sqlite open": ("EMFILE", "EINTR"),
    "send": ("ENOBUFS", "short"),
    "recvmsg": ("no descriptors", "ENOBUFS"),
    "connect": ("EAGAIN",),
    "fork": ("EAGAIN",),
    "flock": ("ENOLCK",),
    "prlimit": ("EPERM",),
    "mmap": ("ENOMEM",),
    "thread": ("no thread",),
}
#: Calls that cannot fail: on pipes whose other end is there, and on a memory file whose size has just been read.
CANNOT_FAIL = (
    *(("write", "daemon/__main__.py", " tell"), ("read", "daemon/privileges/base.py", " start_isolated")),
    *(("fstat", "daemon/seats/layouts.py", " _whole"), ("fstat", "daemon/seats/record.py", " usage_in")),
)
#: Faults of one run.  Those of a run in which something is wrong are tried again one by one.
AT_ONCE = 6
WORKERS = 3


class Site(NamedTuple):
    """Where a call is made, whichever process of the program makes it."""

    program: str  # "daemon" while it serves, "start" of a daemon, "shim", "child" of a shim before it is the job
    call: str
    site: str


def site_of(process: str, stage: str, call: str, site: str) -> Site:
    program = process.split()[0]
    return Site("start" if (program, stage) == ("daemon", "start") else program, call, site)


@dataclass
class Result:
    """What one fault, or several in one run, led to."""

    planned: tuple[Fault, ...]
    fired: set[Fault]
    errors: list[str]
    effects: list[str]


@dataclass
class Table:
    """``missed``: cases whose call was not made in any run."""

    cases: int
    results: list[Result] = field(default_factory=list)
    missed: set[Fault] = field(default_factory=set)

    def wrong(self) -> list[Result]:
        """Faults that alone led to something that must not be."""
        return [result for result in self.results if result.errors and len(result.planned) == 1]

    def together(self) -> list[Result]:
        """Several faults in one run that led to something which none of them leads to alone."""
        alone = {result.planned[0] for result in self.wrong()}
        return [result for result in self.results if result.errors and not alone & set(result.planned)]

    def report(self) -> str:
        """What was tried, and whatever is wrong."""
        kinds = Counter(fault.kind for result in self.results for fault in result.fired)
        lines = [
            f"{self.cases} cases in {len(self.results)} runs: {len(self.wrong())} wrong, {len(self.missed)} missed",
            f"wrong with several faults, and with none of them alone: {len(self.together())} runs",
            f"faults by kind: {dict(kinds)}",
        ]
        lines += [f"missed: {fault}" for fault in sorted(self.missed)]
        for result in self.wrong():
            lines += [f"WRONG: {result.planned[0]}", *(f"    {text}" for text in result.errors + result.effects)]
        return "\n".join(lines)


def run(
    nursery: Nursery, story: type[Story], usual: Mapping[str, Counter[str]], planned: Sequence[Fault]
) -> tuple[Story, Result]:
    with home_directory() as directory:
        directory.chmod(0o711)
        scenario = story(nursery, directory, planned, usual).run()
        return scenario, Result(tuple(planned), scenario.fired(), scenario.errors, scenario.effects)


#: Process, stage, call, site.
Call = tuple[str, str, str, str]


@dataclass
class Calls:
    """How often each call happens in a run without faults (of several, the smallest number), and what is open then."""

    story: type[Story]
    counts: dict[Call, int]
    usual: dict[str, Counter[str]]


def recorded(nursery: Nursery, story: type[Story], runs: int = 2) -> Calls:
    counts: list[Counter[Call]] = []
    usual: dict[str, Counter[str]] = {}
    for _ in range(runs):
        scenario, result = run(nursery, story, {}, ())
        assert not result.errors, (result.errors, result.effects)
        counts.append(Counter(call[:4] for call in scenario.calls))
        usual = {when: usual.get(when, Counter()) | found for when, found in scenario.descriptors.items()}
    return Calls(story, dict(reduce(and_, counts)), usual)


def cases_of(calls: Mapping[Call, int]) -> dict[Site, list[Fault]]:
    """The first and the last occurrence of each site, with every kind that fits the call."""
    where: dict[Site, list[tuple[Call, int]]] = defaultdict(list)
    for call, number in calls.items():
        where[site_of(*call)].append((call, number))
    found: dict[Site, list[Fault]] = {}
    for site, occurrences in where.items():
        ends = dict.fromkeys([(*occurrences[0][0], 1), (*occurrences[-1][0], occurrences[-1][1])])
        if not any(site.call == call and path in site.site and name in site.site for call, path, name in CANNOT_FAIL):
            found[site] = [Fault(*end, kind) for kind in KINDS[site.call] for end in ends]
    return found


def grouped(cases: Iterable[Fault], size: int = AT_ONCE) -> Iterator[tuple[Fault, ...]]:
    """Of different processes where possible, never two at one site, nor two that may keep a daemon from starting."""
    groups: list[list[Fault]] = []
    for case in cases:
        fits = [group for group in groups if len(group) < size and not any(_clash(case, other) for other in group)]
        fits.sort(key=lambda group: sum(other.process == case.process for other in group))
        if fits:
            fits[0].append(case)
        else:
            groups.append([case])
    return (tuple(group) for group in groups)


def _clash(one: Fault, other: Fault) -> bool:
    if one.stage == other.stage == "start" and one.process.startswith("daemon"):
        return one.process == other.process == "daemon 1"
    return one.site == other.site


def table(nursery: Nursery, calls: Calls, cases: Sequence[Fault]) -> Table:
    """Runs with several faults first; the faults of those in which something is wrong again, in the end one by one."""
    done, left = Table(len(cases)), set(cases)
    with ThreadPoolExecutor(WORKERS) as pool:
        for size in (AT_ONCE, 2, 1):
            for _, result in pool.map(partial(run, nursery, calls.story, calls.usual), grouped(sorted(left), size)):
                done.results.append(result)
                if not result.errors or size == 1:
                    left -= result.fired
    done.missed = left
    return done
