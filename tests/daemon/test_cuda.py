"""A CUDA device on the stub driver under a real daemon, with jobs that map extents as libcarpool does."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carpool.core.model import MIB
from carpool.daemon.system.processes import STOPPED, state_of
from tests import libraries
from tests.daemon.daemon_harness import Daemon, Make, parent_of, until
from tests.daemon.filled_jobs import FilledJobs
from tests.devices.cuda_stub import MEMORY, Stub
from tests.emulator.nvml.values import stubbed
from tests.tiers import RARER_WAY, all_but_first

CAPACITY = MEMORY - 32 * MIB
SIZE = 120 * MIB  # of a job that does not fit twice


@pytest.fixture
def cuda(stub: Stub, make_daemon: Make) -> Daemon:
    return make_daemon("--device", "cuda").started()


def device(daemon: Daemon) -> dict[str, Any]:
    (found,) = daemon.get("/v1/devices")["devices"]
    return found


def agent_of(daemon: Daemon) -> int:
    """The process id of its device agent."""
    assert daemon.process is not None
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
    (agent,) = (pid for pid in children if b"devices.cuda.agent" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return int(agent)


def descriptors(daemon: Daemon, job: int) -> int:
    """How many its shim has."""
    return len(list(Path(f"/proc/{parent_of(daemon.show(job)['pid'])}/fd").iterdir()))


def test_memory_that_is_given_back_is_free(cuda: Daemon) -> None:
    job = cuda.fake(
        *("attach", "help", "turn", f"grow:p:{100 * MIB}", f"touch:p:{100 * MIB}:7", f"shrink:{20 * MIB}"),
        *(f"until_mapped:p:{32 * MIB}", f"check:{20 * MIB}:7", "release", "say:done", "pause"),
        line="done",
    )
    assert "intact" in cuda.output(job) and device(cuda)["used_bytes"] == 32 * MIB


def test_jobs_that_do_not_fit_take_turns_with_the_memory(cuda: Daemon, tmp_path: Path, stub: Stub) -> None:
    jobs = FilledJobs(cuda, tmp_path, SIZE)
    first = jobs.filled(1)
    second = jobs.filled(2)
    assert cuda.show(first)["offloaded"] and cuda.show(first)["stored_bytes"] == SIZE
    assert stub.used() <= CAPACITY
    jobs.intact(first, second)
    assert cuda.show(second)["moved"]["out_bytes"] == cuda.show(second)["moved"]["in_bytes"] == SIZE
    jobs.nothing_left()


def test_a_stopped_job_keeps_nobody_waiting(cuda: Daemon, tmp_path: Path) -> None:
    """Its memory is copied without it; only to let go of it, it runs for a moment."""
    jobs = FilledJobs(cuda, tmp_path, SIZE)
    first = jobs.filled(1)
    pid = cuda.show(first)["pid"]
    os.kill(pid, signal.SIGSTOP)
    second = jobs.filled(2)
    assert cuda.show(first)["offloaded"]
    jobs.intact(second)
    until(lambda: state_of(pid, os.getuid()) == STOPPED)
    os.kill(pid, signal.SIGCONT)
    jobs.intact(first)


@pytest.mark.parametrize("way", all_but_first(["out", "in"]))
def test_a_daemon_that_is_killed_while_it_copies(cuda: Daemon, tmp_path: Path, way: str) -> None:
    """What was not finished has not happened."""
    jobs = FilledJobs(cuda, tmp_path, SIZE)
    first = jobs.filled(1)
    agent = agent_of(cuda)
    if way == "in":
        granted = cuda.show(first)["persistent_limit"]
        cuda.cancel(
            second := jobs.filled(2, size=granted)
        )  # leaves as much as the first comes back to: nothing is made
        cuda.wait(second)
    os.kill(agent, signal.SIGSTOP)  # the copy does not get on
    if way == "in":
        since = cuda.events()[-1]["seq"]
        jobs.go_on(first)
        cuda.until_event(lambda event: event["kind"] == "GrantMemory" and event["job"] == first, since)
    else:
        second = jobs.start(2)
        cuda.until("Offload", first)
    cuda.kill()
    os.kill(agent, signal.SIGKILL)
    cuda.started()
    if way == "out":
        cuda.until_line(second, "filled")
        jobs.go_on(first)
        jobs.intact(second)
    jobs.ended_intact(first)


@pytest.mark.nightly(RARER_WAY, stays="test_a_restart_finds_the_same_device")
def test_jobs_keep_their_memory_in_many_pieces_over_a_restart(cuda: Daemon, tmp_path: Path, stub: Stub) -> None:
    """More than a shim can send in one message; and the same lane in two jobs."""
    fifos = [tmp_path / name for name in ("first", "second")]
    for fifo in fifos:
        os.mkfifo(fifo)
    grown = [f"grow:{kind}:{size * MIB}" for size in range(4, 72, 4) for kind in "pe"]
    after = (f"check:{68 * MIB}:7", f"grow:p:{80 * MIB}", f"touch:p:{80 * MIB}:9", f"check:{80 * MIB}:9", "release")
    first = cuda.fake(
        "attach", "help", *grown, f"touch:p:{68 * MIB}:7", "say:up", f"listen:{fifos[0]}", *after, line="up"
    )
    second = cuda.fake(
        "attach", "help", f"grow:e:{60 * MIB}", "say:up", f"listen:{fifos[1]}", f"touch:e:{60 * MIB}:5", line="up"
    )
    used = device(cuda)["used_bytes"]
    assert descriptors(cuda, first) > 20
    cuda.restarted()
    assert device(cuda)["used_bytes"] == used and cuda.show(first)["phase"] == "running"
    for job, fifo in zip((first, second), fifos, strict=True):
        fifo.write_bytes(b"go")
        info = cuda.wait(job)
        assert info["outcome"] == "succeeded", (info, cuda.output(job), cuda.log())
    assert cuda.output(first).count("intact") == 2
    assert device(cuda)["used_bytes"] == 0


def test_a_restart_finds_the_same_device(cuda: Daemon) -> None:
    job = cuda.fake("attach", "say:attached", "pause", line="attached")
    cuda.kill()
    cuda.arguments = ("--device", "cuda:0:64MiB")
    error = cuda.failed()
    assert (
        error["code"] == "devices_in_use"
        and f"--device cuda:0:{CAPACITY >> 20}MiB --sharing timeslice" in error["hint"]
    )
    cuda.arguments = ()
    cuda.started()
    assert (device(cuda)["id"], device(cuda)["capacity_bytes"]) == ("cuda0", CAPACITY)
    assert cuda.show(job)["phase"] == "running"


def test_devices_of_both_kinds(stub: Stub, make_daemon: Make) -> None:
    stub.devices(MEMORY, MEMORY)
    given = ("--device", "cuda:1:64MiB", "--device", "host:64MiB", "--device", "cuda:0", "--sharing", "mps")
    daemon = make_daemon(*given).started()
    found = {each["id"]: (each["kind"], each["capacity_bytes"]) for each in daemon.get("/v1/devices")["devices"]}
    assert found == {"cuda1": ("cuda", 64 * MIB), "host0": ("host", 64 * MIB), "cuda0": ("cuda", CAPACITY)}
    added = [event["data"]["device"] for event in daemon.events() if event["kind"] == "DeviceAdded"]
    assert {each["id"]: each["sharing"] for each in added} == {"cuda1": "mps", "host0": "concurrent", "cuda0": "mps"}
    jobs = [daemon.fake("attach", "turn", f"grow:p:{4 * MIB}", device=name) for name in ("cuda1", "host0")]
    assert [daemon.wait(job)["outcome"] for job in jobs] == ["succeeded"] * 2


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("cuda:3", "no_such_gpu", "there is no GPU 3"),
        ("cuda:1GiB", "device_too_large", "256 MiB"),
        ("cuda:0:lots", "bad_size", "--device cuda:0:lots"),
        ("cuda:0:1B", "bad_size", "at least 2 MiB"),
        ("gpu", "unknown_device_kind", "gpu"),
        ("MIG-", "bad_device", "the name of the instance is incomplete"),
        ("MIG-6361:1B", "bad_size", "at least 2 MiB"),
        ("MIG-1234", "no_such_gpu", "no MIG instance MIG-1234"),
    ],
)
def test_gpus_that_cannot_be_had(stub: Stub, make_daemon: Make, given: str, code: str, words: str) -> None:
    error = make_daemon("--device", given).failed()
    assert error["code"] == code and words in error["message"], error
    assert error.get("hint") or code == "bad_size"


def test_a_gpu_is_given_once(stub: Stub, make_daemon: Make) -> None:
    assert make_daemon("--device", "cuda", "--device", "cuda:0").failed()["code"] == "same_device"


def instance(ordinal: int) -> str:
    """The stub driver's name of one."""
    return f"MIG-{uuid.UUID(bytes=b'carpool-stub-gp' + str(ordinal).encode())}"


def test_instances_of_a_partitioned_gpu(stub: Stub, make_daemon: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each agent and each job sees its instance only."""
    monkeypatch.setenv("EMULATOR_MIG", "1")
    stub.devices(MEMORY, MEMORY // 2)
    first, second = instance(0), instance(1)
    daemon = make_daemon("--device", second, "--device", f"{first}:64MiB", "--device", "host:64MiB").started()
    found = {each["id"]: (each["kind"], each["capacity_bytes"]) for each in daemon.get("/v1/devices")["devices"]}
    assert found == {"mig0": ("cuda", MEMORY // 2 - 16 * MIB), "mig1": ("cuda", 64 * MIB), "host0": ("host", 64 * MIB)}
    job = daemon.python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", device="mig0")
    assert daemon.wait(job)["outcome"] == "succeeded" and daemon.output(job) == f"{second}\n"
    daemon.stop()
    error = make_daemon("--device", first, "--device", first).failed()
    assert (error["code"], error["message"]) == ("same_device", f"{first} is given twice")


def test_a_number_on_a_partitioned_gpu_is_its_instance(
    stub: Stub, make_daemon: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the driver counts; what it says of itself looks like a GPU, and NVML knows better."""
    monkeypatch.setenv("EMULATOR_MIG", "1")
    nvml = libraries.nvml()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.parent), prepend=os.pathsep)
    with stubbed(nvml, tmp_path / "values") as values:
        values.gpu("GPU-1", {"mig.mode": 1})
        values.gpu(instance(0), {"mig.parent": "GPU-1", "mig.instance": 3})
        daemon = make_daemon("--device", "cuda:0").started()
        job = daemon.python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", ended=True)
        assert daemon.output(job) == f"{instance(0)}\n"
        while (info := device(daemon)["telemetry"])["level"] == "none":
            pass
        assert info["mig"] is True
        daemon.stop()


@pytest.fixture
def partitioned(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of three instances of the only GPU."""
    monkeypatch.setenv("EMULATOR_MIG", "1")
    stub.devices(MEMORY, MEMORY // 2, MEMORY // 2)
    nvml = libraries.nvml()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.parent), prepend=os.pathsep)
    names = [instance(number) for number in range(3)]
    with stubbed(nvml, tmp_path / "values") as values:
        values.gpu("GPU-1", {"mig.mode": 1})
        for number, name in enumerate(names):
            values.gpu(name, {"mig.parent": "GPU-1", "mig.instance": number})
        yield names


@pytest.mark.nightly(RARER_WAY, stays="test_instances_of_a_partitioned_gpu")
def test_a_partitioned_gpu_without_a_number_is_all_its_instances(partitioned: list[str], make_daemon: Make) -> None:
    daemon = make_daemon("--device", "cuda:64MiB", "--device", "host:64MiB").started()
    found = [(each["id"], each["kind"], each["capacity_bytes"]) for each in daemon.get("/v1/devices")["devices"]]
    assert found == [*((f"mig{number}", "cuda", 64 * MIB) for number in range(3)), ("host0", "host", 64 * MIB)]
    see = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    jobs = [daemon.python(see, device=f"mig{number}") for number in range(3)]
    for job, name in zip(jobs, partitioned, strict=True):
        assert daemon.wait(job)["outcome"] == "succeeded" and daemon.output(job) == f"{name}\n"


@pytest.mark.nightly(RARER_WAY, stays="test_instances_of_a_partitioned_gpu")
def test_instances_that_the_daemon_may_not_use_are_left_out(
    partitioned: list[str], make_daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(partitioned[:2]))
    daemon = make_daemon("--device", "cuda").started()
    assert [each["id"] for each in daemon.get("/v1/devices")["devices"]] == ["mig0", "mig1"]
    daemon.stop()
    error = make_daemon("--device", "cuda", "--device", partitioned[1]).failed()
    assert (error["code"], error["message"]) == ("same_device", f"{partitioned[1]} is given twice")


SHOW_PIPE = "import os; print(os.environ.get('CUDA_MPS_PIPE_DIRECTORY'))"


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> str:
    """The pipe of an MPS server in the daemon's environment."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/mps")
    return "/run/mps"


def test_jobs_reach_the_mps_server_of_the_daemon(stub: Stub, pipe: str, make_daemon: Make) -> None:
    """Those whose lanes share a GPU through one, and the device's agent, unless they are led elsewhere."""
    daemon = make_daemon("--device", "cuda", "--device", "host:64MiB", "--sharing", "mps").started()
    elsewhere = daemon.python(SHOW_PIPE, device="cuda0", env={"CUDA_MPS_PIPE_DIRECTORY": "/elsewhere"})
    led = daemon.python(SHOW_PIPE, device="cuda0")
    not_led = daemon.python(SHOW_PIPE, device="host0")
    shown = {job: daemon.wait(job) and daemon.output(job).strip() for job in (elsewhere, led, not_led)}
    assert shown == {elsewhere: "/elsewhere", led: pipe, not_led: "None"}
    agent = Path(f"/proc/{agent_of(daemon)}/environ").read_bytes().split(b"\0")
    assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode() in agent


def test_a_gpu_that_its_driver_slices_leads_to_no_mps_server(stub: Stub, pipe: str, make_daemon: Make) -> None:
    daemon = make_daemon("--device", "cuda").started()
    job = daemon.python(SHOW_PIPE)
    assert daemon.wait(job) and daemon.output(job) == "None\n"


def test_without_a_driver(make_daemon: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").touch()  # found first, and no library
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    error = make_daemon("--device", "cuda").failed()
    assert error["code"] == "no_gpu" and "driver" in error["message"] and "carpool doctor" in error["hint"]
