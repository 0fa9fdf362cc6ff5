"""Units for systemd: what is written, and that systemd understands it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from carpool.cli.commands.daemon.install_unit import unit_text
from carpool.protocol.paths import SYSTEM_HOME
from tests.cli.conftest import Cli

DOCS = Path(__file__).parents[4] / "docs"


def test_the_servers_unit_can_be_looked_at_first(carpool: Cli) -> None:
    text = carpool.ok(
        "install-unit", "--print", "--run-as", "carpool", "--device", "host:64MiB", "--metrics", "[::1]:9467"
    )
    command = "-P -m carpool.daemon --home /var/lib/carpool --user carpool --device host:64MiB --metrics [::1]:9467\n"
    assert command in text and "WantedBy=multi-user.target" in text and "KillMode=process" in text
    assert "leave --user or --run-as out" in carpool("install-unit", "--user", "--run-as", "carpool").stderr


def test_a_users_unit_is_written_where_systemd_looks(carpool: Cli, tmp_path: Path) -> None:
    carpool.env["XDG_CONFIG_HOME"] = str(tmp_path)
    said = carpool.ok("install-unit", "--user")
    unit = tmp_path / "systemd" / "user" / "carpool.service"
    assert f"written: {unit}" in said and "systemctl --user enable --now carpool" in said
    assert f"--home {carpool.home}\n" in unit.read_text() and "WantedBy=default.target" in unit.read_text()


def test_another_unit_that_is_there_stays_unless_it_is_to_be_replaced(carpool: Cli, tmp_path: Path) -> None:
    carpool.env["XDG_CONFIG_HOME"] = str(tmp_path)
    elsewhere, unit = tmp_path / "precious", tmp_path / "systemd" / "user" / "carpool.service"
    elsewhere.write_text("text")
    unit.parent.mkdir(parents=True)
    unit.symlink_to(elsewhere)
    assert "--force replaces the file" in carpool.fails(1, "install-unit", "--user")
    carpool.ok("install-unit", "--user", "--force")
    carpool.ok("install-unit", "--user")  # the same once more
    assert elsewhere.read_text() == "text" and not unit.is_symlink() and "ExecStart" in unit.read_text()
    assert [path.name for path in unit.parent.iterdir()] == [unit.name] and unit.stat().st_mode & 0o777 == 0o644


def test_what_no_unit_can_say_is_refused(carpool: Cli) -> None:
    assert "control characters" in carpool.fails(2, "install-unit", "--print", "--home", "/x\nExecStartPre=/bin/false")
    assert "useradd --system no-such-user" in carpool.fails(2, "install-unit", "--run-as", "no-such-user")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("user", [False, True])
def test_systemd_understands_the_unit(tmp_path: Path, user: bool) -> None:
    unit = tmp_path / "carpool.service"
    unit.write_text(unit_text(Path("/srv/a b%h$x"), user=user, run_as="daemon", devices=["cuda:0"]))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"/srv/a b%%h$$x"' in unit.read_text() and str(SYSTEM_HOME) == "/var/lib/carpool"


def test_there_is_one_unit_and_no_page_has_another() -> None:
    """A page that shows a unit of its own differs from `carpool install-unit` sooner or later."""
    pages = [
        path
        for path in DOCS.rglob("*.md")
        if re.search(r"^(ExecStart|KillMode|Restart)=", path.read_text(), re.MULTILINE)
    ]
    assert pages == []
