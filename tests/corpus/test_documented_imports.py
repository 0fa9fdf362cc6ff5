"""Policies as users have written them for version 0.1.0: they load as users load them, and keep the contract."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.core.placement import PLACEMENTS, load_placement
from carpool.core.policies import POLICIES, load_policy
from carpool.plugins import announced_placements, announced_policies, ensure_placement, ensure_policy
from carpool.policy_check import ContractViolation, check_policy

POLICIES_OF_USERS = Path(__file__).with_name("policies")
CLASSES = {"aging": "Aging", "smallest": "Smallest", "everything": "Everything"}
ENTRY_POINTS = """[carpool.policies]
users-aging = users_package.aging:Aging

[carpool.placements]
users-fewest = users_package.fewest:Fewest
"""
TRACE = "job_id,submit_s,gpus,duration_s,weight\nlong,0,1,60,100\nnormal,1,1,30,100\nurgent,2,1,30,200\n"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded here is unknown to other tests."""
    for registry in (POLICIES, PLACEMENTS):
        monkeypatch.setattr(registry, "_registered", {})


def trusted_copy(name: str, directory: Path) -> Path:
    """Where nobody else may write, whatever the checkout is like."""
    file = Path(shutil.copy(POLICIES_OF_USERS / f"{name}.py", directory))
    file.chmod(0o644)
    return file


def simulated(directory: Path, *options: str) -> str:
    """What `carpool simulate` says of three jobs; their times are in ``jobs.csv``."""
    (directory / "trace.csv").write_text(TRACE)
    command = [sys.executable, "-m", "carpool.cli", "simulate", "trace.csv", "--jobs-csv", "jobs.csv", *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + (directory / "jobs.csv").read_text()


@pytest.mark.parametrize("name", CLASSES)
def test_a_file_is_trusted_and_keeps_the_contract(name: str, tmp_path: Path) -> None:
    policy = f"{trusted_copy(name, tmp_path)}:{CLASSES[name]}"
    ensure_policy(policy, trusted=True)
    assert load_policy(policy).name == name
    check_policy(policy, seeds=range(2))


def test_the_contract_still_finds_what_is_wrong(tmp_path: Path) -> None:
    file = trusted_copy("aging", tmp_path)
    file.write_text(file.read_text().replace("return (job.submitted_us", "return (view.now + job.submitted_us"))
    with pytest.raises(ContractViolation):
        check_policy(f"{file}:Aging", seeds=range(1))


def test_the_command_line_takes_files_of_both_kinds(tmp_path: Path) -> None:
    for name in ("aging", "fewest"):
        trusted_copy(name, tmp_path)
    assert "urgent,2.000000,1,60.000000,90.000000" in simulated(tmp_path, "--policy", "./aging.py:Aging")
    said = simulated(tmp_path, "--devices", "3", "--placement", "./fewest.py:Fewest")
    assert "urgent,2.000000,1,2.000000,32.000000" in said


def test_installed_packages_announce_both_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, about = tmp_path / "users_package", tmp_path / "users_package-1.dist-info"
    for directory in (package, about):
        directory.mkdir()
    for name in ("aging", "fewest"):
        trusted_copy(name, package)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: users-package\nVersion: 1\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    assert "users-aging" in announced_policies() and "users-fewest" in announced_placements()
    ensure_policy("users-aging")
    ensure_placement("users-fewest")
    assert (load_policy("users-aging").name, load_placement("users-fewest").name) == ("aging", "fewest")
