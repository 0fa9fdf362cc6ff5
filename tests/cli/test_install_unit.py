"""Units for systemd: what is written, and that systemd understands it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Cli

from carpool.cli.request.unit_file import unit_text
from carpool.protocol.paths import SYSTEM_HOME


def test_the_servers_unit_can_be_looked_at_first(carpool: Cli) -> None:
    text = carpool.ok("install-unit", "--print", "--run-as", "carpool", "--device", "host:64MiB")
    command = "-P -m carpool.daemon --home /var/lib/carpool --user carpool --device host:64MiB\n"
    assert command in text and "WantedBy=multi-user.target" in text and "KillMode=process" in text
    assert "leave --user or --run-as out" in carpool("install-unit", "--user", "--run-as", "carpool").stderr


def test_a_users_unit_is_written_where_systemd_looks(carpool: Cli, tmp_path: Path) -> None:
    carpool.env["XDG_CONFIG_HOME"] = str(tmp_path)
    said = carpool.ok("install-unit", "--user")
    unit = tmp_path / "systemd" / "user" / "carpool.service"
    assert f"written: {unit}" in said and "systemctl --user enable --now carpool" in said
    assert f"--home {carpool.home}\n" in unit.read_text() and "WantedBy=default.target" in unit.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("user", [False, True])
def test_systemd_understands_the_unit(tmp_path: Path, user: bool) -> None:
    unit = tmp_path / "carpool.service"
    unit.write_text(unit_text(Path("/srv/a b%h$x"), user=user, run_as="daemon", devices=["cuda:0"]))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"/srv/a b%%h$$x"' in unit.read_text() and str(SYSTEM_HOME) == "/var/lib/carpool"
