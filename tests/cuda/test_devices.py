"""Several GPUs: every job sees the one that it has been given."""

from __future__ import annotations

from carpool.core.model import MIB
from tests.cuda.rig import Daemon, Daemons
from tests.devices.cuda_stub import MEMORY, Stub

UUID = "GPU-63617270-6f6f-6c2d-7374-75622d67703{}"


def test_each_job_sees_its_own_device_and_no_other(two: Daemon) -> None:
    jobs = [two.submit("which", device=f"cuda{index}") for index in (1, 0)]
    assert [job.result()["devices"] for job in jobs] == [[UUID.format(1)], [UUID.format(0)]]
    assert [job.info().device for job in jobs] == ["cuda1", "cuda0"]


def test_a_host_device_beside_it_hides_nothing(daemons: Daemons, stub: Stub) -> None:
    stub.devices(MEMORY, 32 * MIB)
    daemon = daemons("cuda:0", "host:64MiB")
    (here,) = [daemon.submit("which", device="host0")]
    assert here.result()["devices"] == [UUID.format(0), UUID.format(1)]
