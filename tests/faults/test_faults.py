"""Every call that can fail fails once, at each of its sites: no acknowledged job is lost, and what happened is said."""

from __future__ import annotations

import pytest

from tests.faults.nursery import Nursery
from tests.faults.scenario import Scenario
from tests.faults.starts import Starts
from tests.faults.story import Fault
from tests.faults.table import Calls, Site, Table, cases_of, recorded, table

#: Fewer would mean that the scenario, or what is wrapped, has lost something.
SITES = {"start": 55, "daemon": 95, "shim": 45, "child": 4}
#: Of the cases: calls whose number differs from run to run.
MISSED_PERCENT = 10
#: In `make test`: one of each kind, in programs of every kind.
SAMPLE = (
    Site("daemon", "sqlite fsync", "journal.sqlite-wal"),
    Site("daemon", "pwrite", "protocol/paths.py"),
    Site("daemon", "memfd_create", "daemon/shims/spawn.py"),
    Site("shim", "write", "runtime/shim/__main__.py"),
    Site("shim", "recvmsg", "protocol/packets.py"),
    Site("child", "open to write", "runtime/shim/streams.py"),
)


@pytest.fixture(scope="module")
def calls(nursery: Nursery) -> Calls:
    return recorded(nursery, Scenario)


def sampled(calls: Calls) -> list[Fault]:
    """The first case of each site of the sample."""
    cases = cases_of(calls.counts)
    found = []
    for sample in SAMPLE:
        site = next(site for site in cases if site[:2] == sample[:2] and site.site.startswith(sample.site))
        found.append(cases[site][0])
    return found


def test_a_sample_of_faults(nursery: Nursery) -> None:
    calls = recorded(nursery, Scenario, runs=1)
    done = table(nursery, calls, sampled(calls))
    assert not done.wrong() and not done.missed, done.report()


def judge(done: Table, sites: int, least: int) -> None:
    print(done.report())
    assert sites >= least
    assert not done.wrong(), done.report()
    assert len(done.missed) * 100 <= MISSED_PERCENT * done.cases, done.report()


@pytest.mark.nightly("hundreds of faults: minutes", stays="test_a_sample_of_faults")
@pytest.mark.parametrize("program", ["daemon", "shim", "child"])
def test_every_call_fails_once(nursery: Nursery, calls: Calls, program: str) -> None:
    """First and last occurrence at each site, with every kind that fits the call."""
    cases = {site: faults for site, faults in cases_of(calls.counts).items() if site.program == program}
    judge(table(nursery, calls, [fault for found in cases.values() for fault in found]), len(cases), SITES[program])


@pytest.mark.nightly("hundreds of faults: minutes", stays="test_a_sample_of_faults")
def test_every_call_of_a_start_fails_once(nursery: Nursery) -> None:
    calls = recorded(nursery, Starts)
    cases = {site: faults for site, faults in cases_of(calls.counts).items() if site.program == "start"}
    judge(table(nursery, calls, [fault for found in cases.values() for fault in found]), len(cases), SITES["start"])
