"""The driver killed at each of its steps: the next one answers the same, and leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed (pip install 'carpool[k8s]')")
import grpc

from tests.kubernetes.dra.standins import SLICE

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons
    from tests.kubernetes.dra.conftest import DraNode
    from tests.kubernetes.dra.standins import StandInApiServer

KILLED = Path(__file__).with_name("killed.py")
STAYS = "tests/kubernetes/dra/test_driver.py::test_a_new_driver_answers_from_the_files_and_removes_what_is_stale"
#: Looking for the slice and the node, publishing; reading the claim; an old draft, a draft, its name; reading the claim
#: again; removing the file.
STEPS = 6 + 2 + 6 + 2 + 2


@pytest.mark.nightly("a driver is started twice for each step", stays=STAYS)
def test_a_kill_at_each_step_changes_no_answer(
    dra_node: DraNode, api_server: StandInApiServer, daemons: Daemons
) -> None:
    daemon = daemons("host:64MiB")
    answers: list[Any] = []
    step, dies = 0, True
    while dies:
        step += 1
        answer, dies = one_life(dra_node, api_server, daemon, step)
        answers.append(answer)
    assert step == STEPS + 1, "the last one has not been killed"
    assert all(answer == answers[0] for answer in answers)


def one_life(node: DraNode, api_server: StandInApiServer, daemon: Daemon, step: int) -> tuple[Any, bool]:
    """What the kubelet is told of a claim, and whether the driver has been killed meanwhile."""
    api_server.objects.pop(SLICE, None)
    claim = api_server.claim("a", {"weight": 300})
    driver = node.run(daemon.home, program=(str(KILLED), str(step), str(node.cdi)))
    over = threading.Event()
    successor = threading.Thread(target=lambda: driver.wait() and not over.is_set() and node.run(daemon.home))
    successor.start()
    answer = patiently(lambda: node.kubelet.prepare(claim))
    again = patiently(lambda: node.kubelet.prepare(claim))
    assert (answer["uid-a"].error, again) == ("", answer), step
    assert [path.name for path in node.cdi.iterdir()] == ["carpool.dev-claim_uid-a.json"], step
    assert patiently(lambda: node.kubelet.unprepare(claim)) == {"uid-a": ""}
    assert [*node.cdi.iterdir()] == [], step
    assert [device["name"] for device in api_server.slice()["devices"]] == ["host0"]
    over.set()
    dies = driver.poll() is not None
    node.end_processes()
    successor.join()
    return answer, dies


def patiently(call: Callable[[], Any]) -> Any:
    """As the kubelet does, which asks again."""
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
