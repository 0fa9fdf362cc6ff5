"""Attacks from outside of any job, as another user than the daemon's and the victim's.

``attackers.py MODE HOME SEED VICTIM...``; VICTIM is the number of a job of the victim's.

Standard library only.  Each mode goes on until SIGTERM.  Standard output is a file: what is in it at any time, one line
of JSON, says how many attempts were made, what they came to, and how often the secret of `raw.py` was in anything that
could be read.  So it is known of an attacker that is killed, too.

Of the home an attacker can list nothing (mode 0711), but knows all names: those of the daemon's files, those in the
directories of jobs, and the numbers of jobs.
"""

import collections
import ctypes
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

MODE, HOME, SEED, VICTIMS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
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
half = []  # connections that stay open, or threads that have some
slow = []


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
        "checkpoint",
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
    try:
        status, _ = asked(*request())
    except ValueError:
        counts["not sent"] += 1  # http.client refuses control characters in paths
        return
    counts["answers"] += 1
    counts[f"answered {status}"] += 1


def asked(method, path, body=None):
    """The answer, searched for the secret."""
    connection = Connection()
    try:
        connection.request(method, path, None if body is None else json.dumps(body).encode())
        answer = connection.getresponse()
        data = answer.read(1 << 20)
        look(data)
        return answer.status, data
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


#: Connections over which one user reads at the same time.
POLLING = 60
LISTS = ("/v1/jobs", "/v1/events?limit=10000")


def polling():
    """Reads of what costs most, over many connections that stay open."""
    counts.update(dict.fromkeys(("answers", "refusals", "secrets"), 0))  # `say` reads them while threads count
    for number in range(POLLING if not half else 0):
        half.append(threading.Thread(target=poll, args=(LISTS[number % len(LISTS)],), daemon=True))
        half[-1].start()
    time.sleep(0.5)


def poll(path):
    connection = Connection()
    while True:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            look(answer.read())
            counts["answers" if answer.status == 200 else "refusals"] += 1
        except (OSError, http.client.HTTPException):
            connection.close()
            time.sleep(0.1)


# Another user, who attacks nobody

SLOW_S = 0.25


def user():
    """One question and one small job a second; when answers came late, by the monotonic clock, and how late."""
    job = {"argv": ["true"], "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}}
    for request in (("GET", "/v1/version"), ("POST", "/v1/jobs", job)):
        began = time.monotonic()
        status, _ = asked(*request)
        took = time.monotonic() - began
        counts[f"answered {status}"] += 1
        if took > SLOW_S:
            slow.append((began, took))
    time.sleep(1)


# The session socket


def session():
    connection = opened(socket.SOCK_SEQPACKET, "session.sock")
    connection.settimeout(0.2)
    with connection:
        (register if rng.random() < 0.2 else babble)(connection)
        receive(connection)


def register(connection):
    """As the shim of a job, whole and without a mistake."""
    job = int(rng.choice((*VICTIMS, rng.randrange(200))))
    message = {"type": "register", "job": job, "shim_pid": os.getpid(), "kept": []}
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(connection, [json.dumps(message).encode()], [ends[1].fileno()])
    counts["registrations"] += 1
    for end in ends:
        end.close()


def babble(connection):
    with open(os.devnull) as null:
        for _ in range(rng.randrange(1, 30)):
            data = message() if rng.random() < 0.8 else rng.randbytes(rng.choice((1, 100, 60_000)))
            fds = [null.fileno()] * rng.choice((0, 1, 2, 16))
            socket.send_fds(connection, [data], fds)
            counts["messages"] += 1
            counts["descriptors sent"] += len(fds)


def message():
    kept = ["lane:1", "bank:1"][: rng.randrange(3)]
    kind = rng.choice(("register", "channel", "started", "exited", "taken", "x"))
    fields = {"type": kind, "job": rng.randrange(200), "kept": kept, "more": rng.random() < 0.7}
    return json.dumps(fields | {"shim_pid": os.getpid()}).encode()


def receive(connection):
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 64)
    counts["session answers"] += bool(data)
    look(data)
    for descriptor in descriptors:
        counts["descriptors"] += 1
        look(os.pread(descriptor, 1 << 20, 0))
        os.close(descriptor)


# Files: those of one's own jobs are made into traps, which the daemon is then asked for; those of others are tried

NAMES = ("log", "exit.json", "started", "lock", "door", "log.2", "exit.json.2", "started.2", "new")
OWN_JOBS = 10
own = collections.deque(maxlen=OWN_JOBS)


def files():
    if len(own) < OWN_JOBS or rng.random() < 0.02:
        own_job()
    if rng.random() < 0.2 or not own:
        try_others()
        return
    number = rng.choice(own)
    if not (directory := HOME / "jobs" / str(number)).exists():
        counts["jobs that do not run yet"] += 1
        time.sleep(0.01)
        return
    lay_trap(directory / rng.choice(NAMES))
    status, _ = asked(*rng.choice(questions(number)))
    counts["answers about traps"] += 1
    counts[f"about traps: answered {status}"] += 1


def own_job():
    """Its directory is there from its start on, and belongs to its owner."""
    status, data = asked(
        "POST", "/v1/jobs", {"argv": ["sleep", rng.choice("19")], "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}}
    )
    if status == 201:
        own.append(json.loads(data)["id"])


def questions(number):
    job = f"/v1/jobs/{number}"
    cancelled = [("POST", f"{job}/cancel")] if rng.random() < 0.2 else []
    return [("GET", f"{job}/logs"), ("GET", job), ("GET", f"{job}/attempts"), *cancelled]


def lay_trap(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    other = victims_file()
    rng.choice((os.mkfifo, listening, lambda at: at.symlink_to(other), hardlink_to_own, garbage, deep))(path)
    counts["traps laid"] += 1


def hardlink_to_own(path):
    """The kernel refuses (`protected_hardlinks`) what the user may not write, which `try_others` tries."""
    path.hardlink_to(HOME / "jobs" / str(rng.choice(own)) / rng.choice(NAMES[:4]))


def listening(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def garbage(path):
    path.write_bytes(rng.choice((b"", b"{", b'{"code": 1e999}', rng.randbytes(100_000))))


def deep(path):
    for _ in range(rng.randrange(1, 60)):
        path.mkdir(mode=rng.choice((0o700, 0o755)))
        path /= "d"


def victims_file():
    return HOME / "jobs" / rng.choice(VICTIMS) / rng.choice(NAMES)


def try_others():
    """Everything that one could do to another user's file; none of it may succeed."""
    path, mine = victims_file(), HOME / "jobs" / str(rng.choice(own or [0])) / f"link-{rng.randrange(1 << 30)}"
    attempts = (
        lambda: look(read(path)),
        lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CREAT)),
        path.unlink,
        lambda: path.rename(mine),
        lambda: mine.hardlink_to(path),
        lambda: path.with_name("new").symlink_to("/"),
        lambda: [*path.parent.iterdir()],
        lambda: path.parent.chmod(0o777),
        lambda: path.parent.rename(HOME / "jobs" / "0"),
        lambda: [*(HOME / "jobs").iterdir()],
        lambda: (HOME / "jobs" / "new").mkdir(),
    )
    counts["files of others tried"] += 1
    try:
        rng.choice(attempts)()
    except PermissionError:
        counts["files of others refused"] += 1
    else:
        counts["files of others had"] += 1


# What others have is opened and read, wherever it lies

HOME_FILES = (
    *("", "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "ledger", "daemon.log", "daemon.pid"),
    *("policy-calls", "acknowledged", "control-groups", "limits.toml", "jobs", "removed", "seats"),
)
PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)


def places():
    for process in others():
        yield from (process / name for name in ("environ", "mem", "maps", "fd", "cwd", "root/etc/shadow"))
        yield from (process / "fd" / str(number) for number in range(30))
    yield from (HOME / name for name in HOME_FILES)
    yield from (HOME / "jobs" / number / name for number in VICTIMS for name in ("", *NAMES))


def others():
    """Processes of other users: the daemon, its helper, shims, the victim."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid != os.geteuid():
                yield process
        except FileNotFoundError:
            continue


def reading():
    """Each file is opened, each descriptor of others asked for, and what can be read searched for the secret."""
    for path in places():
        tried("files tried", lambda at=path: read(at))
        if stopping:
            return
    for process in others():
        for number in range(30):
            tried("descriptors asked for", lambda of=int(process.name), fd=number: take(of, fd))
            if stopping:
                return


def tried(what, attempt):
    counts[what] += 1
    if counts[what] % 100 == 0:
        time.sleep(0.01)  # the other attacks want to compute, too
    try:
        data = attempt()
    except FileNotFoundError:
        counts["not there"] += 1
    except OSError:
        counts["refused"] += 1
    else:
        counts["could be read"] += bool(data)
        look(data)


def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def take(pid, number):
    """The content of a process's descriptor.  Raises OSError."""
    pidfd = os.pidfd_open(pid)
    try:
        fd = libc.syscall(PIDFD_GETFD, pidfd, number, 0)
    finally:
        os.close(pidfd)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    counts["descriptors taken"] += 1
    try:
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


def say():
    said = {**counts, "slow": slow}
    os.pwrite(sys.stdout.fileno(), json.dumps(said).encode() + b"\n", 0)  # it grows, and so does the line


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
attack = {"api": api, "session": session, "files": files, "reading": reading, "polling": polling, "user": user}[MODE]
while not stopping:
    counts["attempts"] += 1
    time.sleep(0.01)  # the other attacks want to compute, too
    try:
        attack()
    except (OSError, http.client.HTTPException) as error:  # the daemon was killed meanwhile
        counts[type(error).__name__] += 1
    say()
