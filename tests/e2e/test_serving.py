"""`carpool serve` as its users have it: models that do not fit together, training beside it, and what goes wrong."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tritonclient.utils import InferenceServerException

from tests.e2e.fates import DIE_AT_ONCE, DIE_HALFWAY, NOTHING, STAY
from tests.e2e.fronts import Front, alone, ask, register
from tests.e2e.malformed import malformed, status
from tests.e2e.watching import until
from tests.tiers import all_but_first

if TYPE_CHECKING:
    from tests.e2e.conftest import Bare, Daemon, Daemons
    from tests.live import Workload

MODELS = ("small", "middle", "large")  # 36 MiB together
STANDBY = 2
ROUNDS, CLIENTS = 8, 2
SWITCHES, MALFORMED = 50, 1000


class Service:
    """The front, and what models answer without it, by model and seed."""

    def __init__(self, daemon: Daemon, front: Front, stage: Path) -> None:
        self.daemon, self.front, self.stage = daemon, front, stage
        self.expected = {model: alone(model, range(CLIENTS)) for model in MODELS}

    def ask(self, model: str, seed: int = 0, what: int = NOTHING) -> bool:
        """Whether the answer is right."""
        with self.front.client() as client:
            return ask(client, model, seed, what) == self.expected[model][seed]

    def rounds(self, seed: int) -> list[bool]:
        return [self.ask(model, seed) for _ in range(ROUNDS) for model in MODELS]

    def will(self, what: int) -> Path:
        """From now on, to the first who is asked for it."""
        fate = self.stage / str(what)
        fate.touch()
        return fate

    @contextmanager
    def staying(self, callers: ThreadPoolExecutor) -> Iterator[Future[bool]]:
        """A request for the large model, which is being computed until the block ends, at the latest."""
        here = self.stage / "here"
        self.will(STAY)
        try:
            answer = callers.submit(self.ask, "large", what=STAY)
            until(here.exists, self.daemon)
            yield answer
        finally:
            here.unlink(missing_ok=True)

    def let_go(self) -> None:
        (self.stage / "here").unlink()

    def pids(self) -> dict[int, int]:
        """Of the workers, by job."""
        return {job: pid for job in self.front.workers() if (pid := self.daemon.client.job(job).pid) is not None}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stage")


@pytest.fixture(scope="module")
def daemon(module_daemons: Daemons, environment: dict[str, str], stage: Path) -> Daemon:
    daemon = module_daemons("host:48MiB")
    corrupt = stage / "corrupt.safetensors"
    corrupt.write_bytes(random.Random(1).randbytes(4096))
    register(daemon, environment, stage, corrupt=str(corrupt), **dict.fromkeys((*MODELS, "huge")))
    return daemon


@pytest.fixture(scope="module")
def service(daemon: Daemon, stage: Path, one_thread: None) -> Iterator[Service]:
    front = Front(daemon, (*MODELS, "huge", "corrupt"), f"--standby={STANDBY}", cache=stage)
    try:
        front.settle(STANDBY + 1)
        yield Service(daemon, front, stage)
        front.stop()
    finally:
        front.close()


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_answers_and_training_are_what_they_are_alone(
    service: Service, bare: Bare, workload: type[Workload], callers: ThreadPoolExecutor
) -> None:
    training = service.daemon.submit_script(workload("adam"), meet=True)
    (expected,) = bare([workload("adam")])
    service.daemon.meeting.begin(1)
    answers = list(callers.map(service.rounds, range(CLIENTS)))
    assert answers == [[True] * (ROUNDS * len(MODELS))] * CLIENTS
    assert training.result() == expected
    assert service.front.metric("carpool_copied_bytes_total") > 1 << 28, "they do not fit together"
    (device,) = service.daemon.client.devices()
    assert 0 < device.weights_bytes <= device.capacity_bytes


@pytest.mark.parametrize("what", all_but_first([DIE_AT_ONCE, DIE_HALFWAY]))
@pytest.mark.parametrize("model", all_but_first(["large", "small"]))
def test_a_worker_that_dies_while_it_computes(service: Service, model: str, what: int) -> None:
    """At once: the weights are still being copied, unless they were there."""
    retries, before = service.front.metric("carpool_retries_total"), ended(service).keys()
    fate = service.will(what)
    assert service.ask(model, what=what) and not fate.exists()
    assert service.front.metric("carpool_retries_total") == retries + 1
    assert all(service.ask(each) for each in MODELS)
    service.front.settle(STANDBY + 1)
    assert [ended(service)[number] for number in ended(service).keys() - before] == [("failed", signal.SIGKILL)]


def ended(service: Service) -> dict[int, tuple[str, int | None]]:
    """How each job has, that has."""
    jobs = service.daemon.client.jobs()
    return {job.id: (job.outcome, job.signal) for job in jobs if job.outcome is not None}


def test_a_worker_that_dies_while_it_waits(service: Service, callers: ThreadPoolExecutor) -> None:
    """For its turn, and for memory that another model's weights have."""
    retries = service.front.metric("carpool_retries_total")
    with service.staying(callers) as staying:
        waiting = callers.submit(service.ask, "middle")
        os.kill(pid_of_who_waits(service), signal.SIGKILL)
        until(lambda: service.front.metric("carpool_retries_total") == retries + 1, service.daemon)
    assert staying.result() and waiting.result()
    service.front.settle(STANDBY + 1)


def pid_of_who_waits(service: Service) -> int:
    found: list[int] = []

    def waits() -> bool:
        jobs = [service.daemon.client.job(number) for number in service.front.workers()]
        found[:] = [job.pid for job in jobs if job.reason is not None and not job.holds_turn and job.pid is not None
                    and job.reason.text.startswith("waiting for")]  # fmt: skip
        return bool(found)

    until(waits, service.daemon)
    return found[0]


def test_the_daemon_dies_in_the_middle_of_requests(service: Service, callers: ThreadPoolExecutor) -> None:
    with service.staying(callers) as staying:
        service.daemon.kill()
        try:
            waiting = [callers.submit(service.ask, model, 1) for model in MODELS]
        finally:
            service.let_go()
            service.daemon.start()
    assert staying.result() and all(each.result() for each in waiting)


def test_weights_outlive_the_daemon(service: Service) -> None:
    assert service.ask("large")
    copied = service.front.metric("carpool_copied_bytes_total")
    service.daemon.kill()
    service.daemon.start()
    assert service.ask("large")
    assert service.front.metric("carpool_copied_bytes_total") == copied


def test_models_that_cannot_be_asked(service: Service) -> None:
    with service.front.client() as client:
        for model, status, text in (("huge", "507", "do not fit onto the device"), ("corrupt", "503", "not available")):
            with pytest.raises(InferenceServerException, match=text) as caught:
                ask(client, model, 0)
            assert caught.value.status() == status
    assert service.front.lines["corrupt"]["event"] == "unavailable"
    assert str(service.stage / "corrupt.safetensors") in service.front.lines["corrupt"]["reason"]
    assert service.ask("small")


def test_malformed_requests_are_the_clients_mistake(service: Service, moments: random.Random) -> None:
    seed = moments.randrange(1 << 32)
    seen: Counter[int] = Counter()
    for number in range(seed, seed + MALFORMED):
        answer = status(service.front.url, *malformed(random.Random(number)))
        assert answer < 500, f"random.Random({number})"
        seen[answer] += 1
    assert seen[200] and seen[400] > MALFORMED // 4, seen
    assert service.ask("small") and service.front.metric("carpool_workers", state="idle") == STANDBY + 1


def test_switches_leave_nothing_behind(service: Service) -> None:
    def switch() -> None:
        for _ in range(SWITCHES):
            assert all(service.ask(model) for model in ("middle", "large"))

    switch()
    before = held(service)
    switch()
    for name, (memory, files) in held(service).items():
        assert memory < before[name][0] + (4 << 20) and files <= before[name][1] + 2, (name, before)


def held(service: Service) -> dict[str, tuple[int, int]]:
    """Of each process: bytes of memory of its own, descriptors."""
    pids = {f"job {job}": pid for job, pid in service.pids().items()}
    pids |= {"front": service.front.process.pid, "daemon": int((service.daemon.home / "daemon.pid").read_text())}
    return {name: (anonymous(pid), sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())) for name, pid in pids.items()}


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(value) << 10


def test_a_front_that_is_killed_leaves_no_workers(daemon: Daemon, service: Service) -> None:
    ours = set(service.front.workers())
    with ExitStack() as stack:
        front = Front(daemon, ("small",), "--standby=1", cache=service.stage)
        stack.callback(front.close)
        front.settle(2)
        workers = set(front.workers()) - ours
        front.process.kill()
    assert [daemon.client.wait(worker, 60).outcome for worker in workers] == ["succeeded"] * 2
    assert service.ask("small") and set(service.front.workers()) == ours


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_a_front_that_is_killed_leaves_no_workers"
)
def test_a_front_that_is_killed_beside_training(
    daemon: Daemon, service: Service, bare: Bare, workload: type[Workload]
) -> None:
    """Nor does it have a model that does not fit into its store."""
    ours = set(service.front.workers())
    training = daemon.submit_script(workload("adam"), meet=True)
    (expected,) = bare([workload("adam")])
    with ExitStack() as stack:
        front = Front(daemon, ("small", "large"), "--standby=1", "--store=10MiB", cache=service.stage)
        stack.callback(front.close)
        assert front.lines["small"]["event"] == "ready"
        assert "the store's budget is 10 MiB" in front.lines["large"]["reason"]
        with front.client() as client:
            assert ask(client, "small", 0) == service.expected["small"][0]
        front.settle(2)
        daemon.meeting.begin(1)
        workers = set(front.workers()) - ours
        front.process.kill()
    assert len(workers) == 2
    for worker in workers:
        assert daemon.client.wait(worker, 60).outcome == "succeeded"
    assert training.result() == expected
    assert service.ask("small") and set(service.front.workers()) == ours
