"""Facts of a GPU are written down, in the form that the emulated GPU reads, too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.gpu_check import runner

Found = Callable[..., dict[str, Any]]
NUMBERS = {"MULTIPROCESSOR_COUNT": 16, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81}


@pytest.fixture
def found(root: Path, stub_machine: dict[str, str], tmp_path: Path) -> Found:
    """What a check has found on a stub driver of its own, and what it has left in files."""

    def run(name: str, **env: str) -> dict[str, Any]:
        into = tmp_path / "kept"
        command = [sys.executable, "-m", "tools.gpu_check", "one", name, f"--out={into}"]
        own = stub_machine | env
        done = subprocess.run(command, cwd=root, env=own, capture_output=True, text=True, timeout=90, check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        assert result["outcome"] == runner.PASSED, done.stdout
        return result["figures"] | {path.name: path.read_text() for path in into.iterdir()}

    return run


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_emulated_gpu_is_like_the_card_that_was_seen(found: Found) -> None:
    card = {NUMBERS["MULTIPROCESSOR_COUNT"]: 132, NUMBERS["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"]: 233472}
    seen = found("facts", EMULATOR_ATTRIBUTES=",".join(f"{number}={value}" for number, value in card.items()))
    facts, emulated = json.loads(seen["facts.json"]), variables(seen["emulator.env"])
    assert {name: facts["attributes"][name] for name in NUMBERS} == dict(zip(NUMBERS, card.values(), strict=True))
    assert emulated["EMULATOR_DEVICES"] == str(512 << 20)
    again = json.loads(found("facts", **emulated)["facts.json"])
    assert again["attributes"] == facts["attributes"]
    assert facts["granularities"]["POSIX_FILE_DESCRIPTOR, MINIMUM"] == 2 << 20


def test_a_part_that_fails_says_why_and_takes_no_other_along(found: Found) -> None:
    seen = json.loads(found("facts", EMULATOR_FAIL="cuMemGetAllocationGranularity=801")["facts.json"])
    assert "CUDA_ERROR_NOT_SUPPORTED" in seen["granularities"]["NONE, MINIMUM"]
    assert seen["attributes"]["WARP_SIZE"] == 32


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes",
    stays="test_the_emulated_gpu_is_like_the_card_that_was_seen",
)
def test_a_context_has_the_size_that_it_takes(found: Found) -> None:
    seen = found("context_by_phase", EMULATOR_CONTEXT="8MiB")
    assert seen["context, MiB"] + seen["stream, MiB"] == 8
    assert variables(seen["emulator.env"]) == {"EMULATOR_CONTEXT": str(8 << 20)}
