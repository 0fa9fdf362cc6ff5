"""`carpool mps`, with a stand-in for NVIDIA's control program: what it says and does, not what MPS does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from carpool.protocol.paths import Home
from tests.cli.conftest import Cli

PROGRAM = "nvidia-cuda-mps-control"
STAND_IN = Path(__file__).with_name("stand_in_mps_control.py")


@pytest.fixture
def mps(carpool: Cli, tmp_path: Path) -> Cli:
    """The stand-in is found where the real one would be."""
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    program.chmod(0o755)
    carpool.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    return carpool


def test_on_status_off(mps: Cli, home: Path) -> None:
    assert "is not running" in mps.ok("mps", "status")
    shown = mps.ok("mps", "on")
    assert f"MPS has been started; its pipe is in {home}/mps/pipe" in shown
    assert "one fault domain" in shown and "serves one\nuser at a time" in shown
    assert f"export CUDA_MPS_PIPE_DIRECTORY={home}/mps/pipe" in shown
    assert Home(home).mps_on.exists() and Home(home).mps_pipe == home / "mps" / "pipe"
    assert (home / "mps" / "pipe").stat().st_mode & 0o777 == 0o700
    assert "is already running" in mps.ok("mps", "on")
    assert "no process uses it" in mps.ok("mps", "status")
    assert mps.ok("mps") == mps.ok("mps", "status")
    assert mps.ok("mps", "off") == "MPS has been stopped\n" and not Home(home).mps_on.exists()
    assert mps.ok("mps", "off") == "MPS is not running\n"


def test_it_is_not_stopped_under_programs_that_use_it(mps: Cli) -> None:
    mps.ok("mps", "on")
    mps.env["STAND_IN_MPS_CLIENTS"] = "71,72"
    assert "used by process 71, 72" in mps.ok("mps", "status")
    assert json.loads(mps.ok("mps", "status", "--json"))["clients"] == [71, 72]
    result = mps("mps", "off")
    assert result.returncode == 5 and "process 71, 72" in result.stderr
    del mps.env["STAND_IN_MPS_CLIENTS"]
    assert json.loads(mps.ok("mps", "off", "--json")) == {"stopped": True}


def test_what_it_complains_about_is_passed_on(mps: Cli) -> None:
    mps.env["STAND_IN_MPS_FAILS"] = "An instance of this daemon is already running"
    result = mps("mps", "on")
    assert result.returncode == 5
    assert "did not start: An instance of this daemon is already running" in result.stderr


def test_a_home_whose_path_is_too_long(mps: Cli, tmp_path: Path) -> None:
    result = mps("mps", "on", "--home", str(tmp_path / ("x" * 90)))
    assert result.returncode == 5 and "shorter --home" in result.stderr


@pytest.mark.parametrize("what", ["on", "status"])
def test_without_the_program(carpool: Cli, home: Path, what: str) -> None:
    (home / "mps" / "pipe").mkdir(parents=True)
    carpool.env["PATH"] = "/nowhere"
    result = carpool("mps", what)
    assert result.returncode == 4
    assert f"there is no {PROGRAM} on this machine" in result.stderr and "carpool doctor" in result.stderr


def test_a_program_that_cannot_be_run(carpool: Cli, tmp_path: Path) -> None:
    (tmp_path / PROGRAM).write_text("no program at all")
    (tmp_path / PROGRAM).chmod(0o755)
    carpool.env["PATH"] = str(tmp_path)
    result = carpool("mps", "on")
    assert result.returncode == 5 and "cannot be run: Exec format error" in result.stderr
