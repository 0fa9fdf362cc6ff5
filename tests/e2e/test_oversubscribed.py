"""Jobs that need nearly all of their device, or 2 and 4 times it together, compute what each computes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watching import MIB, causes, counted, iterates, nothing_left, until, until_event
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload
if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons, Running
    from tests.live import Workload


CAPACITY_MIB = 96
BALLAST_MIB = 49  # the device has room for one job
#: No turn is long for what moving memory costs: it moves as often as the policy likes.
HEEDLESS = {"max_move_share_ppm": 1_000_000}

#: Four jobs need 2 times the device, eight 4 times.
EVERY_BOUNDARY = [
    ("sgd", "adam", "ema", "lbfgs"),
    ("cache", "threads", "grad_scaler", "loader fork"),
    ("checkpoints", "io_calls", "fork_child", "gan"),
    ("sgd", "adam", "ema", "grad_scaler", "threads", "io_calls", "accumulation", "two_models"),
]
OTHER_TURNS = [("tq", 5_000), ("srtf", 0), ("fair", 10_000)]
FEW = ("sgd", "adam", "ema", "checkpoints")


def run(
    daemon: Daemon,
    bare: Bare,
    workloads: Sequence[Workload],
    hints: dict[str, int] | None = None,
    *,
    together: bool = True,
) -> list[Running]:
    """Run the jobs together.  Their results are those of a run alone, and there was not enough memory for them all.

    ``together``: all have iterations enough to wait for each other.
    """
    jobs, expected = daemon.run_together(workloads, bare, ballast_mib=BALLAST_MIB, hints=hints or {}, together=together)
    results = [job.result() for job in jobs]
    names = [workload.name for workload in workloads]
    differing = [name for name, result, alone in zip(names, results, expected, strict=True) if result != alone]
    assert not differing, f"other results than alone: {differing}"
    infos = [job.info() for job in jobs]
    together = sum(info.persistent_bytes for info in infos) + max(info.ephemeral_bytes for info in infos)
    assert together >= len(jobs) // 2 * CAPACITY_MIB * MIB, [info.persistent_bytes >> 20 for info in infos]
    return jobs


def moved_out(daemon: Daemon, jobs: Sequence[Running]) -> list[int]:
    """How often each job's memory has left the device."""
    offloaded = counted(daemon, "Offloaded")
    assert all(job.info().moved.out_bytes >= job.info().moved.in_bytes for job in jobs)
    return [offloaded[job.id] for job in jobs]


@pytest.mark.parametrize(
    "names",
    all_but_first(map(pytest.param, EVERY_BOUNDARY)),
    ids=lambda names: f"{len(names) // 2}x: " + ", ".join(names),
)
def test_switches_at_every_boundary(
    names: tuple[str, ...], bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon = daemons(f"host:{CAPACITY_MIB}MiB", **HEEDLESS)
    jobs = run(daemon, bare, [workload.named(name) for name in names])
    assert min(moved_out(daemon, jobs)) >= 2
    nothing_left(daemon)


@pytest.mark.nightly("a rarer way into a state that another test reaches", stays="test_switches_at_every_boundary")
@pytest.mark.parametrize(("policy", "quantum_us"), OTHER_TURNS)
def test_other_policies_and_quanta(
    policy: str, quantum_us: int, bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon = daemons(f"host:{CAPACITY_MIB}MiB", policy=policy, quantum_us=quantum_us, **HEEDLESS)
    jobs = run(daemon, bare, [workload.named(name) for name in FEW])
    assert sum(moved_out(daemon, jobs)) >= len(FEW)
    nothing_left(daemon)


@pytest.mark.nightly("a rarer way into a state that another test reaches", stays="test_switches_at_every_boundary")
def test_with_the_settings_as_they_are(bare: Bare, daemons: Daemons, workload: type[Workload]) -> None:
    """Memory is known beforehand, and moving it is kept to its share of time."""
    daemon = daemons(f"host:{CAPACITY_MIB}MiB")
    hints = {"persistent_bytes": (BALLAST_MIB + 4) * MIB, "ephemeral_bytes": 24 * MIB}
    jobs = run(daemon, bare, [workload("steady", ("count", "250"))] * 3, hints)
    assert sum(job.info().moved.in_bytes for job in jobs) >= BALLAST_MIB * MIB
    nothing_left(daemon)


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches",
    stays="tests/native/test_library.py::test_offloaded_at_random_instructions",
)
@pytest.mark.parametrize("forced_after_us", [3_000, 17_000])
def test_turns_taken_at_random_instructions_while_several_threads_compute(
    forced_after_us: int, crew_bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon = daemons(f"host:{CAPACITY_MIB}MiB", threads=3, forced_after_us=forced_after_us, **HEEDLESS)
    jobs = run(
        daemon, crew_bare, [workload.named(name) for name in ("crew", "threads", "crew", "adam")], together=False
    )
    assert min(moved_out(daemon, jobs)) >= 2
    assert causes(daemon)["forced"] >= 10, causes(daemon)
    nothing_left(daemon)


def test_srtf_preempts_a_big_job_for_a_small_one(
    bare: Bare, daemons: Daemons, workload: type[Workload], tmp_path: Path
) -> None:
    """They do not fit together.  The small one ends while the big one, whose memory has left, waits for its turn."""
    daemon = daemons(f"host:{CAPACITY_MIB}MiB", policy="srtf", **HEEDLESS)
    release = tmp_path / "release"
    big = daemon.submit(
        workload("steady", ("until", str(release))), hints={"duration_us": 10**9}, ballast_mib=BALLAST_MIB + 20
    )
    until_event(daemon, "GrantTurn", big)
    iterates(daemon, big)
    small = daemon.submit(workload("sgd"), hints={"duration_us": 10**6}, ballast_mib=BALLAST_MIB)
    assert [small.result()] == bare([workload("sgd")])
    assert big.info().phase == "running"
    assert counted(daemon, "Offloaded")[big.id] >= 1
    iterates(daemon, big)
    release.touch()
    result = big.result()
    assert [result] == bare([workload("steady", ("count", str(result["count"])))])
    until(lambda: big.info().moved.in_bytes >= BALLAST_MIB * MIB, daemon)
    nothing_left(daemon)


#: For 6.8 MiB of tensors, and 1.7 of a model and its data; the former reach over twice as many addresses.
CAPACITY = "host:10MiB"


def was_packed(daemon: Daemon, job: Running) -> bool:
    asked = [event.data for event in daemon.client.events() if event.kind == "MemoryRequested" and event.job == job.id]
    return any(data.get("packs") for data in asked)


def test_a_lone_job_has_the_use_of_all_that_it_was_granted(
    bare: Bare, daemons: Daemons, workload: type[Workload]
) -> None:
    daemon, scattered = daemons(CAPACITY, max_recoveries=0), workload("scattered")
    job = daemon.submit(scattered)
    assert [job.result()] == bare([scattered])
    assert was_packed(daemon, job)
    nothing_left(daemon)


def test_two_such_jobs_take_turns_with_the_device(bare: Bare, daemons: Daemons, workload: type[Workload]) -> None:
    scattered = workload("scattered")
    daemon = daemons(CAPACITY, max_recoveries=0, max_move_share_ppm=1_000_000)
    jobs = [daemon.submit(scattered, meet=True) for _ in range(2)]
    daemon.meeting.begin(2, together=True)
    assert [job.result() for job in jobs] == 2 * bare([scattered])
    assert all(was_packed(daemon, job) for job in jobs)
    nothing_left(daemon)
    assert sum(counted(daemon, "Offloaded").values()) >= 2


def test_a_refusal_says_what_there_is_and_what_to_do(daemons: Daemons, workload: type[Workload]) -> None:
    daemon = daemons(CAPACITY, max_recoveries=0)
    job = daemon.submit(workload("scattered", ("9",)))
    info = job.wait()
    assert info.outcome == "failed" and info.reason is not None and info.reason.code == "out_of_memory"
    line = next(line for line in job.log().splitlines() if line.startswith("carpool: device memory was refused"))
    assert "asked for 9.0 MiB; granted " in line and "the device has 10.0 MiB, of which other jobs hold 0.0 MiB" in line
    assert "refused: the job would need " in info.reason.text and "are alive; other jobs hold 0 B" in info.reason.text
    assert "use smaller batches, or a larger device" in info.reason.text
    assert MIB < alive_in(line) < 9 * MIB


def alive_in(line: str) -> float:
    """Bytes."""
    return float(line.partition("of which ")[2].split()[0]) * MIB
