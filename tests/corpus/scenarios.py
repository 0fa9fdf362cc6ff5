"""What the recorder lets real daemons do: each scenario leaves a journal in a home directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from carpool.protocol.api import PolicyRequest, SubmitRequest
from tests import libraries
from tests.cuda import rig as cuda_rig
from tests.daemon.daemon_harness import Daemon as ScriptedDaemon
from tests.devices.cuda_stub import Stub
from tests.e2e.conftest import THREADS, Setup
from tests.e2e.conftest import Daemon as TorchDaemon
from tests.live import Running, Workload

MIB = 1 << 20
Scenario = Callable[[Path], None]


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"]} | dict.fromkeys(THREADS, "1")


@contextmanager
def torch_daemon(home: Path, *devices: str, policy: str = "fair", **settings: int) -> Iterator[TorchDaemon]:
    daemon = TorchDaemon(home, environment(), Setup(devices=devices, policy=policy, settings=settings))
    try:
        yield daemon
    finally:
        daemon.close()


@contextmanager
def scripted_daemon(home: Path, *devices: str, policy: str = "fair") -> Iterator[ScriptedDaemon]:
    options = [*(f"--device={device}" for device in devices), f"--policy={policy}"]
    daemon = ScriptedDaemon(home, *options).started()
    try:
        yield daemon
    finally:
        daemon.stop()


def submit(daemon: TorchDaemon, *scripts: str, **request: int) -> list[Running]:
    return [daemon.submit_script(Workload.named(script), meet=True, **request) for script in scripts]


def under_way(daemon: TorchDaemon, job: Running, iterations: int = 5) -> None:
    goal = job.info().iterations + iterations
    while (info := job.info()).iterations < goal:
        assert info.phase != "ended", daemon.story()


def lanes(home: Path) -> None:
    """PyTorch jobs that share a lane, then lanes side by side under another policy; one job is cancelled."""
    known = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 16 * MIB}
    with torch_daemon(home, "host:512MiB") as daemon:
        jobs = submit(daemon, "sgd", "adam", "ema", **known)
        daemon.meeting.begin(3)
        for job in jobs:
            assert job.result()
        daemon.client.set_policy(PolicyRequest(name="pack", settings={"max_lanes": 2}))
        jobs = submit(daemon, "sgd", "adam", f"holder {home / 'never'}", **known)
        daemon.meeting.begin(3)
        under_way(daemon, jobs[-1])
        daemon.client.cancel(jobs[-1].id)
        for job in jobs:
            job.wait()


def services(home: Path) -> None:
    """Two workers of six models, of which not all fit, beside training jobs."""
    with torch_daemon(home, "host:160MiB", forced_after_us=30_000) as daemon:
        workers = [daemon.submit_script(Workload.named("service 6 16 4 1"), meet=True, service=1) for _ in range(2)]
        jobs = submit(daemon, "spinner", "sgd")
        daemon.meeting.begin(4)
        for job in [*workers, *jobs]:
            assert job.result()


def offloads(home: Path) -> None:
    """Three jobs of which the device holds one; an operator changes its mode, its quantum and the policy."""
    gate = home.parent / "gate"
    os.mkfifo(gate)
    steps = ("attach", "help", f"grow:p:{40 * MIB}", f"touch:p:{40 * MIB}", "rounds:20")
    check = f"check:{40 * MIB}:90"
    with scripted_daemon(home, "host:64MiB", policy="pack") as daemon:
        jobs = [daemon.fake(*steps, f"listen:{gate}", check), *(daemon.fake(*steps, check) for _ in range(2))]
        daemon.until("Offloaded", jobs[0])
        gate.write_text("go on")
        daemon.put("/v1/devices/host0", {"oversubscribe": "on", "quantum_us": 2000})
        daemon.put("/v1/policy", {"name": "tq", "settings": {"max_move_share_ppm": 1_000_000}})
        jobs += [daemon.fake(*steps, "rounds:40", check) for _ in range(2)]
        _all_ended(daemon, jobs)


def restarts(home: Path) -> None:
    """A service and training jobs over three daemons, of which two are killed; a job fails and is started again."""
    with torch_daemon(home, "host:256MiB") as daemon:
        (service,) = submit(daemon, "service 4 16 20 1", service=1)
        jobs = submit(daemon, "spinner", "adam")
        daemon.meeting.begin(3)
        starts = home / "starts"
        fails = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(len(open({str(starts)!r}).read()) < 3)"
        for script in (["-c", fails], ["-c", "pass"]):
            daemon.client.submit(SubmitRequest([sys.executable, *script], "/", environment(), retries=2))
        for _ in range(2):
            switches = service.info().switches
            while (info := service.info()).phase != "ended" and info.switches < switches + 3:
                pass
            daemon.kill()
            daemon.start()
        for job in [service, *jobs]:
            assert job.result()


def several_devices(home: Path) -> None:
    """Jobs of different sizes on three devices under four ways of placement, with gangs, failures and refusals."""
    with scripted_daemon(home, "host:64MiB", "host:96MiB", "host:128MiB") as daemon:
        for placement in ("magm", "best-fit", "round-robin", "lug"):
            daemon.put("/v1/policy", {"placement": placement})
            _all_ended(daemon, _crowd(daemon))
        failed = daemon.python("raise SystemExit(3)", retries=1)
        assert daemon.wait(daemon.python("pass", after=[failed]))["outcome"] == "refused"


def _crowd(daemon: ScriptedDaemon) -> list[int]:
    def fake(size: int, **fields: object) -> int:
        steps = ("attach", "help", f"grow:p:{size * MIB}", f"grow:e:{8 * MIB}", "rounds:12")
        return daemon.fake(*steps, persistent_bytes=size * MIB, ephemeral_bytes=8 * MIB, **fields)

    jobs = [fake(size) for size in (8, 40, 20, 60, 8)]
    jobs += [fake(16, gpus=2), fake(16, device="host1,host2"), fake(8, exclusive=True), fake(8, gpus=3)]
    jobs += [fake(8, after=jobs[:1]), daemon.fake("attach", f"grow:p:{200 * MIB}", "rounds:2")]
    jobs.append(daemon.fake("attach", "turn", f"grow:p:{24 * MIB}", f"shrink:{4 * MIB}", "release", "rounds:3"))
    cancelled = daemon.fake("attach", "turn", "pause")
    daemon.until("ProcessStarted", cancelled)
    daemon.cancel(cancelled)
    return jobs


def suspension(home: Path) -> None:
    """A stub GPU: a job that is suspended by the driver takes turns of the whole device with jobs by grant."""
    patch = pytest.MonkeyPatch()
    stub = Stub(libraries.driver().parent, patch)
    env = cuda_rig.clean_environment() | stub.environment()
    daemon = cuda_rig.Daemon(home, env, ("cuda:0",), ())
    known = {"persistent_bytes": 8 * MIB, "ephemeral_bytes": 8 * MIB}
    other = daemon.submit("train --iterations 1000000 --seed 9", **known)
    daemon.until_under_way(other)
    guest = daemon.submit("plain --iterations 40 --seed 7 --meet 20", checkpoint=True, meet=True)
    waiting = daemon.meeting.arrive(1)
    daemon.until(lambda: guest.info().offloaded)
    second = daemon.submit("train --iterations 60 --seed 1", **known)
    daemon.meeting.go(waiting)
    for job in (guest, second):
        assert job.result()
    daemon.client.cancel(other.id)
    other.wait()
    daemon.close()
    stub.wait_until_free()
    stub.remove()
    patch.undo()


def _all_ended(daemon: ScriptedDaemon, jobs: Sequence[int]) -> None:
    for job in jobs:
        daemon.wait(job)


SCENARIOS: dict[str, Scenario] = {
    "lanes": lanes,
    "services": services,
    "offloads": offloads,
    "restarts": restarts,
    "several-devices": several_devices,
    "suspension": suspension,
}
