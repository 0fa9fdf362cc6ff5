"""The text of a systemd unit for the daemon, and where units lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from carpool.protocol.paths import expanded

NAME = "carpool.service"
#: KillMode, Delegate: jobs outlive a stopped daemon, in control groups that the daemon makes.
_UNIT = """[Unit]
Description=Carpool: deep-learning jobs share this machine's accelerators
{after}
[Service]
Type=exec
ExecStart={command}
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=524288
OOMPolicy=continue
Restart=on-failure
RestartSec=2

[Install]
WantedBy={target}
"""


def unit_text(home: Path, *, user: bool, run_as: str | None, devices: Sequence[str], more: Sequence[str] = ()) -> str:
    """``user``: for a user's own systemd; ``run_as``: user that root's daemon becomes; ``more``: further options."""
    words = [sys.executable, "-P", "-m", "carpool.daemon", "--home", str(home)]
    words += ["--user", run_as] if run_as else []
    words += [word for device in devices for word in ("--device", device)]
    words += more
    after, target = ("", "default.target") if user else ("After=local-fs.target nss-user-lookup.target\n", None)
    return _UNIT.format(after=after, command=" ".join(map(_quoted, words)), target=target or "multi-user.target")


def directory_of_units(*, user: bool) -> Path:
    """Return the directory where systemd looks for units, as in systemd.unit(5)."""
    if not user:
        return Path("/etc/systemd/system")
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else expanded("~/.config")) / "systemd" / "user"


def _quoted(word: str) -> str:
    """Quote one word for systemd, which expands % and $ (systemd.service(5))."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or " " in word or "'" in word else word
