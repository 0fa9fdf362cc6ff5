"""What a process of root's still has of whoever started the daemon, when it has become a user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carpool.runtime.user_process import UMASK, default_umask

SOURCE = Path(__file__).resolve().parents[2] / "src"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
UID, GID, FURTHER = 64001, 64003, 64004
#: A process that has all that can be inherited, becomes a user's as ``how`` says, and says what it has then.
PROCESS = f"""
import ctypes, json, os, sys
sys.path.insert(0, {str(SOURCE)!r})
from carpool.daemon.hooks import remove_trees
from carpool.runtime import notifier
from carpool.runtime.user_process import begin_session_keyring
from carpool.runtime.user_process import become
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key = {{"x86_64": (250, 248), "aarch64": (219, 217)}}[os.uname().machine]
def key():  # 0: none is found
    return max(0, libc.syscall(keyctl, 10, -3, b"user", b"of root", 0))
begin_session_keyring()
libc.syscall(add_key, b"user", b"of root", b"secret", 6, -3)
before = libc.syscall(keyctl, 0, -3, 0)
assert key()
os.umask(0o077)
libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
libc.capset(header, (ctypes.c_uint32 * 6)(0xffffffff & ~(1 << 24), 0xffffffff & ~(1 << 24), 32, 0, 0, 0))
libc.prctl(47, 2, 5, 0, 0)  # CAP_KILL is inherited, and ambient
try:
    os.nice(-5)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
except OSError:
    pass
how = {{
    "shim": lambda: become({UID}, {GID}, [{GID}, {FURTHER}]),
    "notifier": lambda: notifier._become({UID}, {GID}, [{GID}, {FURTHER}]),
    "remover": lambda: remove_trees.main({UID}, {GID}, []),
}}
how[sys.argv[1]]()
status = dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
umask = os.umask(0)
print(json.dumps({{
    "ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(), "umask": umask,
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "keyring": libc.syscall(keyctl, 0, -3, 0) != before, "key": key(), "personality": libc.personality(0xffffffff),
    "nice": os.getpriority(os.PRIO_PROCESS, 0), "policy": os.sched_getscheduler(0),
    "loginuid": open("/proc/self/loginuid").read() if os.path.exists("/proc/self/loginuid") else "",
}}))
"""


def said(how: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROCESS, how], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_root
@pytest.mark.parametrize("how", ["shim", "notifier", "remover"])
def test_nothing_of_root_is_left(how: str) -> None:
    found = said(how)
    assert found["ids"] == [UID] * 3 + [GID] * 3
    assert found["groups"] == ([] if how == "remover" else [GID, FURTHER])
    assert found["capabilities"] == [0] * 4
    assert found["keyring"] and found["key"] == 0, "a session keyring of its own, without root's key"
    assert (found["umask"], found["personality"]) == (default_umask(), 0)
    assert found["nice"] >= 0 and found["policy"] == os.SCHED_OTHER
    assert found["loginuid"] in ("", str(UID)) or not _may_log_in(), found["loginuid"]


def _may_log_in() -> bool:
    """Whether this kernel lets root change whom a process's actions are recorded as."""
    code = "open('/proc/self/loginuid', 'w').write('1')"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_the_mask_of_new_files_is_that_of_logins(tmp_path: Path) -> None:
    path = tmp_path / "login.defs"
    assert default_umask(str(path)) == UMASK
    path.write_text("# UMASK 000\nHOME_MODE 0700\nUMASK\t\t027\n")
    assert default_umask(str(path)) == 0o027
    path.write_text("UMASK none\n")
    assert default_umask(str(path)) == UMASK
