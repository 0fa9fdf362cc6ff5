"""`carpool submit --estimate`: what is asked about which job, and what is sent along."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carpool.cli.request import estimator_process
from carpool.protocol.api import ErrorInfo, SubmitManyRequest, SubmitRequest
from carpool.protocol.estimates import Answer, Prediction, Question
from tests.cli.conftest import Cli
from tests.cli.standin import StandIn, as_json, device, device_list

MIB = 1 << 20
TINY = """
import os, torch
model = torch.nn.Linear(1024, int(os.environ.get("CARPOOL_PARAM_WIDTH", "1024")), bias=False)
update = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.zeros(64, 1024)).sum().backward()
    update.step()
"""
GPU = msgspec.structs.replace(device([], name="cuda0"), kind="cuda")


@pytest.fixture
def daemon(standin: StandIn) -> StandIn:
    standin.reactions["GET /v1/devices"] = device_list(device([]), GPU)
    standin.reactions["POST /v1/history"] = as_json({"runs": []})
    standin.reactions["POST /v1/jobs"] = as_json({"id": 7}, 201)
    standin.reactions["POST /v1/submissions"] = as_json({"ids": [7, 8, 9]}, 201)
    return standin


class Estimator:
    """In place of the process that estimates: ``says`` by the last word of the command; the questions it was asked."""

    def __init__(self, says: Mapping[str, int]) -> None:
        self._says = says
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []

    def ask(self, question: Question, python: str, directory: Path, env: Mapping[str, str]) -> list[Answer]:
        word = question.subject.command[-1]
        self.asked.append((word, question.subject.device, env))
        if word not in self._says:
            return [Answer(question.estimators[0], error=ErrorInfo("cannot_estimate", "it is no script"))]
        size = self._says[word]
        return [Answer(question.estimators[0], Prediction(size, size // 2, size, 2 * size, "faketensor", "by looking"))]


@pytest.fixture
def estimator(monkeypatch: pytest.MonkeyPatch) -> Estimator:
    estimator = Estimator({"a": 4 * MIB, "b": 6 * MIB})
    monkeypatch.setattr(estimator_process, "ask", estimator.ask)
    return estimator


def request(word: str, **facts: Any) -> SubmitRequest:
    return SubmitRequest(argv=["python", word], cwd="/", env=facts.pop("env", {}), **facts)


def memory(requests: Sequence[SubmitRequest]) -> list[tuple[int | None, int | None, str]]:
    return [(each.persistent_bytes, each.ephemeral_bytes, each.estimate_source) for each in requests]


@pytest.mark.parametrize(
    ("devices", "kind"), [(None, "cuda"), ("host0", "host"), ("cuda0", "cuda"), ("cuda0,host0", "cuda")]
)
def test_the_daemon_is_asked_for_the_kind_of_device(
    daemon: StandIn, estimator: Estimator, devices: str | None, kind: str
) -> None:
    estimator_process.estimated([request("a", device=devices)], "faketensor", daemon.home)
    assert [device for _, device, _ in estimator.asked] == [kind]


def test_without_gpus_it_is_the_host(daemon: StandIn, estimator: Estimator) -> None:
    daemon.reactions["GET /v1/devices"] = device_list(device([]))
    estimator_process.estimated([request("a")], "faketensor", daemon.home)
    assert [device for _, device, _ in estimator.asked] == ["host"]


def test_nobody_asks_about_a_job_that_will_be_refused(daemon: StandIn, estimator: Estimator) -> None:
    asked = request("a", device="nowhere")
    assert estimator_process.estimated([asked], "faketensor", daemon.home) == [asked]
    assert estimator.asked == []


def test_each_job_of_many_gets_its_own(
    daemon: StandIn, estimator: Estimator, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [request("a", env={"X": "1"}), request("b"), request("c"), request("c"), request("b", persistent_bytes=1)]
    many = SubmitManyRequest(jobs, {"HOME": "/h"}, [[], [], [], [], [0]])
    found = estimator_process.estimated_many(many, "faketensor", daemon.home)
    known = [(4 * MIB, 2 * MIB, "faketensor"), (6 * MIB, 3 * MIB, "faketensor")]
    assert memory(found.jobs) == [*known, (None, None, "hint"), (None, None, "hint"), (1, None, "hint")]
    assert (found.env, found.follows) == (many.env, many.follows)
    assert [job.env for job in found.jobs] == [{"X": "1"}, *4 * [{}]]
    assert estimator.asked[0][2] == {"HOME": "/h", "X": "1"}
    told = capsys.readouterr().err
    assert told == "carpool: no estimate for 2 of 5 jobs: it is no script; they are measured when they run\n"


def script(directory: Path, text: str) -> list[str]:
    (directory / "train.py").write_text(text)
    return ["--", sys.executable, "train.py"]


@pytest.mark.usefixtures("whole_torch")
def test_submit_sends_the_estimate_along(carpool: Cli, daemon: StandIn, tmp_path: Path) -> None:
    daemon.reactions["GET /v1/devices"] = device_list(device([]))
    words = script(tmp_path, TINY)
    assert carpool.ok("submit", "--estimate", "faketensor", *words, cwd=tmp_path) == "7\n"
    body = daemon.requests[-1].body
    assert (body["estimate_source"], body["persistent_bytes"]) == ("faketensor", 4 * MIB + 4 * 64 * 1024)


def test_submit_goes_on_without_an_estimate(carpool: Cli, daemon: StandIn, tmp_path: Path) -> None:
    result = carpool("submit", "--estimate", "faketensor", *script(tmp_path, "pass"), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "7\n")
    assert "no estimate" in result.stderr
    assert "estimate_source" not in daemon.requests[-1].body


def test_two_sources_exclude_each_other(carpool: Cli, standin: StandIn) -> None:
    for words in (["true"], ["--param", "x=1,2", "true"]):
        assert "both set the memory estimate" in carpool.fails(
            2, "submit", "--estimate", "faketensor", "--mem", "1GiB", *words
        )
    assert standin.requests == []
