"""Tells a web server or a command of a job's event, as the job's owner.

Run by the daemon as ``python -I -S .../notifier.py FD [UID GID GROUPS]``.  The daemon's request comes over the socket
FD, as JSON; the answer is ``ok``, or what went wrong.  A user who could make root's daemon open a connection would
reach what only the daemon can reach, so the process becomes the owner before it reads anything; it imports before that,
because its interpreter need not be readable for every user.  Standard library only.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - of names of hosts
import http.client
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if __name__ == "__main__":  # run by path in isolated mode: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from carpool.runtime.user_process import apply_limits, become, begin_session_keyring, login_limits, raise_hard_limits

#: Time limit of a whole request to a web server, from the look-up of its name to the answer.
WEBHOOK_S = 15
COMMAND_S = 60
READY = b"+"  # this process has become its owner: the daemon may limit it, and send the request
PATH = "/usr/local/bin:/usr/bin:/bin"


class Late(Exception):
    """The time limit has passed."""


def main(fd: int, owner: list[str]) -> None:
    """Become the owner, read the request, and answer.  ``owner``: uid, gid and groups, or nothing."""
    if owner:
        _become(int(owner[0]), int(owner[1]), [int(group) for group in owner[2].split(",")])
    elif os.geteuid() == 0:
        begin_session_keyring()
    with socket.socket(fileno=fd) as daemon:
        daemon.set_inheritable(False)
        daemon.sendall(READY)
        request = json.loads(_all(daemon))
        daemon.sendall((_problem(request) or "ok").encode(errors="replace")[:1000])


def _become(uid: int, gid: int, groups: list[int]) -> None:
    """Drop root's privileges for good, and the daemon's protection from the kernel when memory is exhausted.

    Raises OSError.
    """
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    limits = login_limits(uid, groups)
    raise_hard_limits(limits)
    become(uid, gid, groups)
    apply_limits(limits)


def _all(daemon: socket.socket) -> bytes:
    request = b""
    while piece := daemon.recv(65536):
        request += piece
    return request


def _problem(request: dict[str, Any]) -> str:
    """Carry out the request; return what went wrong, or an empty text."""
    try:
        if "webhook" in request:
            return post(request["webhook"], request["body"])
        return run(request["command"], request["cwd"], request["variables"])
    except ValueError as error:  # an argument or a variable that no process can be given
        return str(error)
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__


def post(url: str, body: str) -> str:
    """Post ``body``; return what went wrong, or an empty text.  Raises OSError.

    No redirection is followed and no body of an answer is read.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/json", "User-Agent": "carpool"}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(WEBHOOK_S)
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=WEBHOOK_S)
        connection.request("POST", path, body.encode(), headers)
        status = connection.getresponse().status
    except (http.client.HTTPException, ValueError) as error:
        return f"no answer of a web server: {type(error).__name__}"
    except Late:
        return f"no answer within {WEBHOOK_S} s"
    finally:
        signal.alarm(0)
    return "" if 200 <= status < 300 else f"the web server answers {status}"


def _late(*_: object) -> None:
    raise Late


def run(command: list[str], cwd: str, variables: dict[str, str]) -> str:
    """Run a command in the job's directory, with few variables and without input and output.  Raises OSError.

    Returns what went wrong, or an empty text.
    """
    null, env = subprocess.DEVNULL, _account() | variables
    process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, cwd=cwd, env=env, start_new_session=True)
    try:
        code = process.wait(COMMAND_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the command did not end within {COMMAND_S} s, and was killed"
    return "" if code == 0 else f"exit code {code}" if code > 0 else f"killed by signal {-code}"


def _account() -> dict[str, str]:
    """Return the variables that a command may expect, and none of the daemon's."""
    found = {"PATH": PATH, "LANG": "C.UTF-8"}
    with suppress(KeyError):
        account = pwd.getpwuid(os.getuid())
        names = {"USER": account.pw_name, "LOGNAME": account.pw_name}
        found |= names | {"HOME": account.pw_dir, "SHELL": account.pw_shell}
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
