"""What jobs inherit: nothing by which users of one daemon reach each other, or whoever started the daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carpool.runtime.user_process import begin_session_keyring, default_umask
from tests.adversary.users import ATTACKER
from tests.daemon.daemon_harness import Daemon, as_nobody
from tests.daemon.privileges.conftest import CORE, UserDaemon
from tests.homes import home_directory

NAMESPACES = ("mnt", "net", "pid", "user")
KINDS = {"whole": (), "separated": ("--user", str(CORE))}
#: Says whether a key is found through the session keyring, and keeps one there for whoever comes after.
KEYRING = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[os.uname().machine]
print("found" if libc.syscall(keyctl, 10, -3, b"user", b"ticket", 0) > 0 else "nothing")
print("kept" if libc.syscall(add_key, b"user", b"ticket", b"SECRET", 6, -3) > 0 else ctypes.get_errno())
print(libc.syscall(keyctl, 0, -3, 0), oct(os.umask(0)), os.getsid(0) == os.getpid())
print(*(os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "user")))
print(open("/proc/self/oom_score_adj").read().strip(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
"""


def says(daemon: Daemon, python: str, uid: int) -> list[str]:
    """What a job of a user's says; of root's, where the daemon starts such jobs."""
    argv, fields = ["env", "LD_PRELOAD=", python, "-I", "-c", KEYRING], {"env": {"PATH": "/usr/bin:/bin"}, "cwd": "/"}
    if uid == 0:
        job = daemon.submit(*argv, **fields)
    else:
        job = as_nobody(daemon, f"daemon.submit(*{argv!r}, **{fields!r})", uid)
    assert daemon.wait(job)["outcome"] == "succeeded", daemon.output(job)
    return daemon.output(job).splitlines()


def _log_in() -> None:
    """What pam_keyinit(8) and a shell do for whoever starts the daemon."""
    begin_session_keyring()
    os.umask(0o077)
    os.setpriority(os.PRIO_PROCESS, 0, -1)


@pytest.fixture(params=list(KINDS))
def daemon(request: pytest.FixtureRequest, python: str) -> Iterator[Daemon]:
    """One that root has started in a session with a keyring."""
    with home_directory() as directory:
        directory.chmod(0o711)
        daemon = UserDaemon(python, directory / "home")
        daemon.arguments, daemon.started_by = ("--device", "host:64MiB", *KINDS[request.param]), {"preexec_fn": _log_in}
        yield daemon.started()
        daemon.stop()


def test_keys_of_one_job_are_found_by_no_other(daemon: Daemon, python: str) -> None:
    users = [ATTACKER, ATTACKER - 1, ATTACKER, *([] if "--user" in daemon.arguments else [0])]
    said = [says(daemon, python, uid) for uid in users]
    for found, kept, keyring, namespaces, oom in said:
        assert (found, kept) == ("nothing", "kept")
        assert keyring.split()[2] == "True" and oom.split() in (["500", "0", "0"], ["500", "-1", "0"])  # of root's
        assert namespaces.split() == [str(Path("/proc/self/ns", name).readlink()) for name in NAMESPACES]
    assert len({lines[2].split()[0] for lines in said}) == len(users), "each job has a session keyring of its own"
    assert {lines[2].split()[1] for lines in said[:3]} == {oct(default_umask())}, "as after a login"
