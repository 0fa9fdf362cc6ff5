"""Attacks from outside of any job: ``attackers.py MODE HOME SEED``, as another user than the daemon's and the victims'.

Standard library only.  Each mode goes on until SIGTERM, and then says in one line of JSON how many attempts it made,
what they came to, and how often the secret of `raw.py` was in anything that it could read.
"""

import collections
import http.client
import json
import os
import random
import signal
import socket
import stat
import sys
from pathlib import Path

MODE, HOME, SEED = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
SECRET = b"SECRET-of-another-user!!"
ODD = (0, -1, 1, 2, 255, 4096, 1 << 31, 1 << 53, 1 << 62, 1 << 63, 1 << 64, 10**400, 0.5, None, True, [], {}, "x")
TEXTS = (
    "",
    "true",
    "../../etc/passwd",
    "\x1b[2J",
    "\u202e",
    "a" * 5000,
    "9" * 5000,
    "\0",
    "{",
    "%s%n",
    "'; DROP TABLE",
)
PATHS = ("", "/wait?timeout_s=1", "/logs", "/logs?offset=-1", "/cancel", "/signal", "/placement", "/attempts", "/../1")
rng = random.Random(SEED)
counts = collections.Counter()
half = []  # connections that stay open


class Connection(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("localhost", timeout=5)

    def connect(self):
        self.sock = opened(socket.SOCK_STREAM, "carpool.sock")


def opened(kind, name):
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.settimeout(5)
    connection.connect(str(HOME / name))
    return connection


def odd():
    return rng.choice((*ODD, *TEXTS))


def look(data):
    counts["secrets"] += SECRET in data


# The API


def submission():
    fields = {"argv": ["sleep", "1"], "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}}
    names = (
        "retries",
        "after",
        "weight",
        "gpus",
        "service",
        "persistent_bytes",
        "name",
        "device",
        "engine",
        "nonsense",
    )
    for name in rng.sample(names, rng.randrange(4)):
        fields[name] = odd()
    if rng.random() < 0.2:
        fields[rng.choice(("argv", "cwd", "env"))] = odd()
    if rng.random() < 0.02:
        fields["env"] = {"LARGE": "x" * rng.choice((100_000, 3_000_000))}
    return fields


def request():
    number = rng.choice((rng.randrange(200), "9" * 5000, -1, "x"))
    return rng.choice(
        (
            ("GET", f"/v1/jobs/{number}{rng.choice(PATHS)}", None),
            ("POST", f"/v1/jobs/{number}{rng.choice(PATHS)}", {"signal": odd()}),
            ("GET", rng.choice(("/v1/jobs", "/v1/events?since=0", "/v1/devices", "/v1/models", "/v1/policy")), None),
            ("PUT", "/v1/policy", {"name": odd(), "settings": {rng.choice(TEXTS): odd()}}),
            ("PUT", f"/v1/models/{rng.choice(('m', 'n', 'a' * 300))}", {"factory": odd(), "cwd": "/", "env": {}}),
            ("POST", "/v1/shutdown", {"stop_jobs": True}),
            ("POST", "/v1/jobs", submission()),
            ("POST", "/v1/submissions", {"jobs": [submission() for _ in range(rng.randrange(4))], "env": {}}),
        )
    )


def api():
    if rng.random() < 0.05:
        half_a_request()
        return
    method, path, body = request()
    connection = Connection()
    try:
        connection.request(method, path, None if body is None else json.dumps(body).encode("utf-8", "surrogatepass"))
        answer = connection.getresponse()
        look(answer.read(1 << 20))
        counts[f"answered {answer.status}"] += 1
    except ValueError:
        counts["not sent"] += 1  # http.client refuses control characters in paths
    finally:
        connection.close()


def half_a_request():
    connection = opened(socket.SOCK_STREAM, "carpool.sock")
    connection.sendall(
        rng.choice((b"GET /v1/jo", b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 99999\r\n\r\n{", rng.randbytes(500)))
    )
    half.append(connection)
    if len(half) > 100:
        half.pop(rng.randrange(len(half))).close()


# The session socket


def session():
    connection = opened(socket.SOCK_SEQPACKET, "session.sock")
    connection.settimeout(0.2)
    with connection, open(os.devnull) as null:
        for _ in range(rng.randrange(1, 30)):
            message = {
                "type": rng.choice(("register", "channel", "started", "ended", "kept", "x")),
                "job": rng.randrange(200),
            }
            message |= {
                "shim_pid": os.getpid(),
                "kept": ["lane:1", "bank:1"][: rng.randrange(3)],
                "more": rng.random() < 0.7,
            }
            data = json.dumps(message).encode() if rng.random() < 0.8 else rng.randbytes(rng.choice((1, 100, 60_000)))
            socket.send_fds(connection, [data], [null.fileno()] * rng.choice((0, 1, 2, 16)))
            counts["sent"] += 1
        receive(connection)


def message():
    kept = ["lane:1", "bank:1"][: rng.randrange(3)]
    kind = rng.choice(("register", "channel", "started", "ended", "kept", "x"))
    fields = {"type": kind, "job": rng.randrange(200), "kept": kept, "more": rng.random() < 0.7}
    return json.dumps(fields | {"shim_pid": os.getpid()}).encode()


def receive(connection):
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 64)
    look(data)
    for descriptor in descriptors:
        counts["descriptors"] += 1
        look(os.pread(descriptor, 1 << 20, 0))
        os.close(descriptor)


# Files: those of one's own jobs are made into traps, those of others are opened where that is possible


def files():
    directories = [path for path in (HOME / "jobs").iterdir() if path.lstat().st_uid == os.geteuid()]
    if not directories:
        return
    directory = rng.choice(directories)
    path = directory / rng.choice(("1/log", "log", "exit.json", "lock", "1/exit.json", "attach.sock", "new"))
    other = HOME / "jobs" / str(rng.randrange(1, 5)) / "1/log"
    if path.exists() or path.is_symlink():
        path.unlink()
    make = rng.choice((os.mkfifo, lambda at: at.symlink_to(other), lambda at: at.hardlink_to(other), garbage, deep))
    make(path)
    counts["traps"] += 1


def garbage(path):
    path.write_bytes(rng.choice((b"", b"{", b'{"code": 1e999}', rng.randbytes(100_000))))


def deep(path):
    for _ in range(rng.randrange(60)):
        path.mkdir(mode=rng.choice((0o700, 0o755)))
        path /= "d"


def places():
    mine = os.geteuid()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.stat().st_uid != mine:
            yield from (process / name for name in ("environ", "mem", "maps"))
            yield from (process / "fd" / str(number) for number in range(3, 30))
    for directory, _, names in os.walk(HOME):
        yield from (Path(directory) / name for name in names)


def reading():
    """What others have is opened, wherever it lies."""
    for path in places():
        try:
            if path.is_relative_to("/proc") or stat.S_ISREG(path.lstat().st_mode):
                with path.open("rb") as file:
                    look(file.read(1 << 20))
                counts["could be read"] += 1
        except OSError:
            counts["refused"] += 1
        if stopping:
            return


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
attack = {"api": api, "session": session, "files": files, "reading": reading}[MODE]
while not stopping:
    counts["attempts"] += 1
    try:
        attack()
    except (OSError, http.client.HTTPException) as error:  # the daemon was killed meanwhile
        counts[type(error).__name__] += 1
print(json.dumps(counts), flush=True)
