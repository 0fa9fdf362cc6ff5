"""``carpool simulate --services``: what is printed of services, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carpool.cli.main import main
from tests.cli.commands.traces.test_simulate import fresh_command

__all__ = ["fresh_command"]

TRACE = "job_id,submit_s,iterations,iteration_ms,persistent_mib\na,0,38,50,600\nb,0,38,50,600\n"
SERVED = """seconds = 2
[[model]]
name = "a"
weights_mib = 60
compute_ms = 10
deadline_ms = 300
rate = 20
[[model]]
name = "b"
weights_mib = 600
compute_ms = 10
arrivals_s = [0, 0.5]
"""
POLICIES = ("--policy", "fair", "--policy", "pack")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    path = tmp_path / "served.toml"
    path.write_text(SERVED, encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    return path


def test_services_alone(capsys: pytest.CaptureFixture[str], served: Path) -> None:
    assert main(["simulate", "--services", str(served)]) == 0
    header, a, b, everything, times = capsys.readouterr().out.splitlines()
    assert header.split() == ["MODEL", "P50", "P99", "MISSED", "REQUESTS", "REQUESTS/S", "BATCHES", "COPIES", "COPIED"]
    rows = [line.split() for line in (a, b, everything)]
    assert [row[0] for row in rows] == ["a", "b", "all"]
    assert [row[5] for row in rows] == ["0", "-", "0"], "deadlines missed; latencies are two words"
    assert int(rows[0][6]) + 2 == int(rows[2][6])
    assert times.startswith("fair: services had devices for ")


def test_services_beside_jobs(capsys: pytest.CaptureFixture[str], served: Path, trace: Path) -> None:
    common = ["simulate", str(trace), "--services", str(served), *POLICIES]
    assert main(common) == 0
    shown = capsys.readouterr().out
    assert "2 jobs on 1 device" in shown
    assert [line.split()[0] for line in shown.split("POLICY")[2].splitlines()[1:3]] == ["fair", "pack"]
    assert "fair: jobs computed in " in shown
    assert main([*common, "--json"]) == 0
    summaries = json.loads(capsys.readouterr().out)
    assert [each["policy"] for each in summaries] == ["fair", "pack"]
    for each in summaries:
        models, everything = each["services"]["models"], each["services"]["all"]
        assert [model["model"] for model in models] == ["a", "b"]
        assert everything["requests"] == sum(model["requests"] for model in models) > 2


def test_without_services_json_says_so(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    assert main(["simulate", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["services"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "srtf", "--policy", "fifo"], "--services: services share devices in lanes only; add --lanes"),
        (["--jobs-csv", "SERVED"], "would overwrite the --services file"),
        (["--device-memory", "500MiB"], "model b needs 629145600 bytes"),
        (["--save-trace", "x.csv", "--seed", "1"], "--seed is for --generate"),
    ],
)
def test_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], served: Path, arguments: list[str], message: str
) -> None:
    named = [str(served) if each == "SERVED" else each for each in arguments]
    assert main(["simulate", "--services", str(served), *named]) == 2
    assert message in capsys.readouterr().err


def test_a_mistake_in_the_file(capsys: pytest.CaptureFixture[str], served: Path) -> None:
    served.write_text(SERVED.replace("rate", "rat"), encoding="utf-8")
    assert main(["simulate", "--services", str(served)]) == 1
    assert 'model 1: unknown key "rat"; did you mean rate' in capsys.readouterr().err


ENGINES = """[[engine]]
name = "llama"
weights_mib = 60
prompt_token_ms = 1
token_ms = 5
requests = [[0.5, 30, 11], [1, 30, 11]]
"""


def test_engines(capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(ENGINES, encoding="utf-8")
    common = ["simulate", str(trace), "--services", str(path)]
    assert main([*common, "--lanes"]) == 0
    header, row = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("ENGINE", "llama"))
    ]
    assert header[:4] == ["ENGINE", "TTFT", "P50", "P99"] and row[:3] == ["llama", "35.2", "ms"]
    assert main([*common, *POLICIES, "--json"]) == 0
    for found in json.loads(capsys.readouterr().out):
        (engine,) = found["services"]["engines"]
        assert (engine["requests"], engine["token_p50_s"], engine["starts"]) == (2, 0.005, 1)
