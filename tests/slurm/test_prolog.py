"""The lines that the TaskProlog prints for an environment, without Slurm and without a daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.api import DeviceInfo, MovedInfo
from carpool.protocol.session import JoinOptions

CONTRIB = Path(__file__).parents[2] / "docs" / "deploy" / "slurm"
sys.path.append(str(CONTRIB))
import task_prolog  # noqa: E402

MIB = 1 << 20


def device(name: str, uuid: str = "", mib: int = 100) -> DeviceInfo:
    sizes = dict.fromkeys(("granted_bytes", "used_bytes", "free_bytes", "stored_bytes", "quantum_us"), 0)
    about: dict[str, Any] = {"kind": "host", "lanes": [], "jobs": [], "queue": [], "quantum_from": "settings"}
    return DeviceInfo(id=name, capacity_bytes=mib * MIB, oversubscribe="auto", moved=MovedInfo(), uuid=uuid, **sizes, **about)  # fmt: skip  # noqa: E501


HOST, OTHER, GPU = device("host0"), device("host1", mib=50), device("cuda:0", "GPU-1")


def test_what_slurm_says_of_a_job_is_on_carpools() -> None:
    env = {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "it's\a job", "SLURM_MEM_PER_NODE": "70"}
    found = task_prolog.options([HOST], env, None)
    assert found == JoinOptions(name="it's? job-12", persistent_bytes=70 * MIB, device="host0", launcher="slurm 12")


def test_an_element_of_an_array_is_called_as_in_squeue() -> None:
    env = {"SLURM_JOB_ID": "14", "SLURM_JOB_NAME": "a", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "2"}
    found = task_prolog.options([HOST], env, None)
    assert (found.name, found.launcher, found.persistent_bytes) == ("a-12_2", "slurm 14", None)


@pytest.mark.parametrize(
    ("devices", "env", "mib"),
    [
        ([HOST], {"SLURM_MEM_PER_CPU": "10", "SLURM_CPUS_ON_NODE": "4"}, 40),
        ([HOST], {"SLURM_MEM_PER_NODE": "4096"}, 100),
        ([HOST, OTHER], {"SLURM_MEM_PER_NODE": "4096"}, 50),
        ([GPU], {"SLURM_MEM_PER_NODE": "4096"}, None),
        ([HOST], {}, None),
    ],
)
def test_memory_is_what_a_host_device_may_be_asked_for(
    devices: list[DeviceInfo], env: dict[str, str], mib: int | None
) -> None:
    found = task_prolog.options(devices, {"SLURM_JOB_ID": "1", **env}, None)
    assert found.persistent_bytes == (None if mib is None else mib * MIB)


def test_slurms_time_limit_comes_first() -> None:
    found = task_prolog.options([HOST], {"SLURM_JOB_ID": "1"}, int(2e18))
    assert found.launcher_ends_us == int(2e18)
    assert found.time_us is not None and found.time_us > task_prolog.LATER_US


@pytest.mark.parametrize(
    ("names", "env", "chosen"),
    [
        (["host0", "host1"], {"SLURM_JOB_GPUS": "1"}, ["host1"]),
        (["host1", "host0"], {"SLURM_JOB_GPUS": "1"}, ["host0"]),
        (["host0", "host1"], {"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "0"}, ["host0"]),
    ],
)
def test_the_device_is_the_one_that_slurm_has_chosen(names: list[str], env: dict[str, str], chosen: list[str]) -> None:
    known = {"host0": HOST, "host1": OTHER}
    assert [one.id for one in task_prolog._chosen(names, env, known)] == chosen


@pytest.mark.parametrize(
    ("names", "env", "why"),
    [
        (["host0"], {}, "Slurm says no GPU"),
        (["host0"], {"SLURM_JOB_GPUS": "1"}, "Carpool has 1 devices: see --devices"),
        (["gone"], {"SLURM_JOB_GPUS": "0"}, "no device 'gone'"),
    ],
)
def test_without_a_device_the_reason_is_said(names: list[str], env: dict[str, str], why: str) -> None:
    with pytest.raises(LookupError, match=why):
        task_prolog._chosen(names, env, {"host0": HOST})


def test_lines() -> None:
    before = {"A": "1", "B": "2", "C": "3"}
    assert list(task_prolog.lines(before, {"A": "1", "B": "x y", "D": "'", "E": "1\n2"})) == [
        *("unset C", "export B=x y", "export D='"),
    ]


@pytest.mark.parametrize(
    ("env", "printed"),
    [
        ({"CARPOOL_JOIN": "/x", "CARPOOL_JOIN_OPTIONS": "{}"}, ["unset CARPOOL_JOIN", "unset CARPOOL_JOIN_OPTIONS"]),
        ({"CARPOOL_JOB": "3", "CARPOOL_HOME": "/x"}, ["unset CARPOOL_HOME", "unset CARPOOL_JOB"]),
        ({"SLURM_SHARDS_ON_NODE": "1", "CARPOOL_DISABLE": "1"}, []),
    ],
)
def test_a_task_without_a_shard_loses_its_submitters_variables(
    tmp_path: Path, env: dict[str, str], printed: list[str]
) -> None:
    words = [sys.executable, "-I", str(CONTRIB / "task_prolog.py"), "--home", str(tmp_path)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == (printed or [""])


def test_a_plain_task_pays_for_a_shell_only() -> None:
    done = subprocess.run(
        [str(CONTRIB / "task_prolog")], env={"PATH": "/bin"}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
