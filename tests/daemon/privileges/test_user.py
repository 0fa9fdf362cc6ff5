"""A daemon of root with a user of its own serves others as before, and has nothing of root."""

from __future__ import annotations

import os
import shlex
import signal
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.client import DaemonClient
from tests.daemon.daemon_harness import FAKEJOB, NOBODY, Daemon, alive, as_nobody, until
from tests.daemon.forks import SOURCE
from tests.daemon.hooks.test_notices import WebServer, settled, web
from tests.daemon.hooks.test_retention import removed_when_old
from tests.daemon.privileges.conftest import CORE, OTHER, UserDaemon, carpool, children, status_of

__all__ = ["web"]

STAYS = "test_two_users_have_jobs_logs_and_ends"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
ASK = """
import sys
from pathlib import Path
from carpool.protocol.client import DaemonClient
DaemonClient(Path(sys.argv[1])).version()
"""
PATH = os.pathsep.join([str(SOURCE), str(FAKEJOB.parent), *site.getsitepackages()])


def submit(daemon: UserDaemon, uid: int, *argv: str, **fields: Any) -> int:
    """A job of a user's."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"}
    said = as_nobody(daemon, f"attempt(lambda: daemon.submit(*{argv!r}, **{ ({'env': env} | fields)!r}))", uid)
    assert isinstance(said, int), said
    return said


def fake(daemon: UserDaemon, uid: int, *steps: str) -> int:
    return submit(daemon, uid, daemon.python_path, "-u", str(FAKEJOB), *steps)


def shell(daemon: UserDaemon, uid: int, text: str) -> int:
    return submit(daemon, uid, "/bin/sh", "-c", text)


def running(daemon: UserDaemon) -> int:
    """The daemon's process."""
    assert daemon.process is not None
    return daemon.process.pid


def test_nothing_of_root_is_left(daemon: UserDaemon) -> None:
    pid = running(daemon)
    fields = status_of(pid)
    assert set(fields["Uid"].split()) == set(fields["Gid"].split()) == {str(CORE)} and fields["Groups"] == ""
    assert [int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0] * 4
    assert fields["NoNewPrivs"] == "1"
    assert Path(f"/proc/{pid}/environ").stat().st_uid == 0  # as of a process that is not dumpable
    assert not daemon.home.stat().st_mode & 0o022
    ours = [path for path in (daemon.home, *daemon.home.iterdir()) if path.lstat().st_uid != CORE]
    assert ours == []


def test_two_users_have_jobs_logs_and_ends(daemon: UserDaemon) -> None:
    jobs = {uid: fake(daemon, uid, "attach", "iterate:3", "say:done") for uid in (NOBODY, OTHER)}
    for uid, job in jobs.items():
        assert daemon.wait(job)["outcome"] == "succeeded", daemon.output(job)
        assert as_nobody(daemon, f"daemon.output({job})", uid).splitlines()[-1] == "done"
        assert daemon.home.joinpath("jobs", str(job), "log").stat().st_uid == uid
    job = jobs[OTHER]
    assert as_nobody(daemon, f"attempt(lambda: daemon.output({job}))", NOBODY) == "not_owner"
    said = shell(daemon, NOBODY, "id -u; id -G; grep CapPrm /proc/self/status; echo $PPID")
    daemon.wait(said)
    uid, groups, capabilities, shim = daemon.output(said).splitlines()
    assert (uid, groups, int(capabilities.split()[1], 16)) == (str(NOBODY), str(NOBODY), 0)
    until(lambda: not alive(int(shim)))


TRAINING = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
"""


@pytest.mark.nightly("with PyTorch what another test shows with scripted jobs", stays=STAYS)
def test_training_comes_to_the_result_that_it_has_alone(daemon: UserDaemon) -> None:
    job = submit(daemon, NOBODY, daemon.python_path, "-c", TRAINING)
    command, env = [daemon.python_path, "-c", TRAINING], {"PATH": "/usr/bin:/bin", "PYTHONPATH": PATH}
    alone = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=True).stdout
    assert daemon.wait(job)["outcome"] == "succeeded", daemon.output(job)
    assert daemon.output(job).splitlines()[-1] == alone.splitlines()[-1]
    assert daemon.show(job)["iterations"] > 0


def test_a_cancelled_job_ends_with_all_its_processes(daemon: UserDaemon) -> None:
    job = shell(daemon, NOBODY, "trap '' TERM; sleep 600 & echo $!; wait")
    daemon.put("/v1/policy", {"settings": {"kill_after_us": 100_000}})
    left = int(next(daemon.lines(job)))
    as_nobody(daemon, f"daemon.cancel({job})", NOBODY)
    assert daemon.wait(job)["outcome"] == "cancelled" and not alive(left)


def test_a_shim_that_is_killed_leaves_no_process(daemon: UserDaemon) -> None:
    """They are found by their environment, and killed, through the helper."""
    job = shell(daemon, NOBODY, "sleep 600 & echo $! $PPID; wait")
    left, shim = map(int, next(daemon.lines(job)).split())
    os.kill(shim, signal.SIGKILL)
    assert daemon.wait(job)["outcome"] == "lost" and not alive(left)


def test_jobs_outlive_the_daemon_and_its_helper(daemon: UserDaemon) -> None:
    job = fake(daemon, NOBODY, "attach", "iterate:1", "say:there", "sleep_idle")
    daemon.until_line(job, "there")
    (helper,) = children(running(daemon))
    assert status_of(helper)["Uid"].split()[0] == "0"
    seated = daemon.show(job)["pid"]
    daemon.restarted()
    until(lambda: not alive(helper))
    assert daemon.show(job)["phase"] == "running" and daemon.show(job)["pid"] == seated
    (helper,) = children(running(daemon))
    os.kill(helper, signal.SIGKILL)
    assert daemon.process is not None and daemon.process.wait(30) == 1
    assert "the helper, which runs as root, has ended" in daemon.log() and alive(seated)
    daemon.started()
    assert daemon.show(job)["phase"] == "running"
    waiting = fake(daemon, OTHER, "attach", "say:done")
    assert daemon.wait(waiting)["outcome"] == "succeeded"
    assert daemon.cancelled(job)["outcome"] == "cancelled" and not alive(seated)


@pytest.mark.parametrize("uid", [0, CORE])
def test_root_and_the_daemons_own_user_have_no_jobs(daemon: UserDaemon, uid: int) -> None:
    assert as_nobody(daemon, "attempt(lambda: daemon.submit('true'))", uid) == "no_jobs_of_this_user"


def test_old_jobs_are_deleted(daemon: UserDaemon) -> None:
    jobs = [shell(daemon, NOBODY, "echo text; mkdir -p deep/er; touch deep/er/file") for _ in range(3)]
    for job in jobs:
        daemon.wait(job)
    (daemon.home / "limits.toml").write_text("keep_jobs = 1\n")
    removed_when_old(daemon, *jobs)
    assert [path.name for path in (daemon.home / "jobs").iterdir()] == [str(jobs[-1])]


def test_the_home_of_a_root_daemon_is_given_by_hand(python: str, home: Path) -> None:
    """With the very command that the refusal says; jobs that ran go on."""
    before = Daemon(home, "--device", "host:64MiB").started()
    assert "--user" in before.log()
    job = as_nobody(before, "daemon.submit('/usr/bin/sleep', '600')", NOBODY)
    before.until("ProcessStarted", job)
    mine = before.submit("/usr/bin/sleep", "600", until="ProcessStarted")
    before.terminate()
    daemon = UserDaemon(python, home)
    error = daemon.failed()
    assert error["code"] == "home_of_another_user" and home.stat().st_uid == 0
    command = error["hint"].partition("then: ")[2].partition(" (not")[0]
    assert shlex.split(command)[0] == "chown"
    subprocess.run(command, shell=True, check=True)
    error = daemon.failed()
    assert error["code"] == "jobs_of_root" and f"job {mine} " in error["message"]
    error = before.failed()
    assert error["code"] == "home_of_another_user" and f"carpool up --user {CORE}" in error["hint"]
    subprocess.run(["chown", "0:0", home, *home.iterdir()], check=True)
    before.started()
    before.cancelled(mine)
    before.terminate()
    subprocess.run(command, shell=True, check=True)
    daemon.started()
    assert daemon.show(job)["phase"] == "running"
    daemon.stop()
    assert not alive(daemon.process.pid if daemon.process else 0)


@pytest.mark.parametrize(
    ("user", "code"),
    [("no-such-user", "unknown_user"), ("0", "bad_user"), ("root", "bad_user"), ("-1", "unknown_user")],
)
def test_a_user_that_cannot_be(home: Path, user: str, code: str) -> None:
    assert Daemon(home, f"--user={user}").failed()["code"] == code
    assert not home.exists()


def test_only_root_can_become_another_user(python: str, home: Path) -> None:
    command = [python, "-P", "-m", "carpool.daemon", "--home", str(home), "--user", "nobody"]
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": {"PYTHONPATH": PATH}}
    done = subprocess.run(command, **who, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "only root can start a daemon with --user" in done.stderr


def test_up_makes_the_home_and_root_writes_through_no_link_there(python: str, home: Path) -> None:
    up = ("up", "--user", str(CORE), "--device", "host:64MiB")
    started = carpool(python, home, *up)
    assert started.returncode == 0, started.stderr
    log = home / "daemon.log"
    assert home.stat().st_uid == log.stat().st_uid == CORE
    assert carpool(python, home, "down").returncode == 0
    log.unlink()
    precious = home.with_name("precious")
    precious.touch(mode=0o600)
    log.symlink_to(precious)
    refused = carpool(python, home, *up)
    assert refused.returncode != 0 and "Permission denied" in refused.stderr and not precious.read_bytes()
    log.unlink()
    assert carpool(python, home, *up).returncode == 0 and log.stat().st_uid == CORE
    assert carpool(python, home, "down").returncode == 0


def test_an_interpreter_that_the_user_cannot_read(python: str, home: Path) -> None:
    if python == sys.executable:
        pytest.skip("every user can read the interpreter of the tests")
    error = Daemon(home, "--user", str(CORE)).failed()
    assert error["code"] == "not_readable" and "install Carpool, and the Python of its environment" in error["hint"]
    if os.path.realpath(sys.executable) != sys.executable:
        assert f"which is {sys.executable}" in error["message"], "the link lies where every user can read it"


def test_another_users_home_is_refused(python: str, home: Path) -> None:
    home.mkdir(mode=0o711)
    os.chown(home, OTHER, OTHER)
    assert UserDaemon(python, home).failed()["code"] == "home_of_another_user"


def test_clients_see_a_daemon_of_root(daemon: UserDaemon) -> None:
    """A user's client gives its environment to root's daemon, or to its own, and to no other."""
    with DaemonClient(daemon.home) as client:
        assert client.version().uid == CORE
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": {"PYTHONPATH": PATH}}
    subprocess.run([daemon.python_path, "-c", ASK, str(daemon.home)], **who, check=True)


AS_OTHER: dict[str, Any] = {"user": OTHER, "group": OTHER, "extra_groups": []}


@pytest.fixture
def plain(python: str, home: Path) -> Iterator[UserDaemon]:
    """A daemon that a user who is not root starts, as `carpool install-unit --user` has systemd do."""
    os.chown(home.parent, OTHER, OTHER)
    daemon = UserDaemon(python, home)
    daemon.arguments, daemon.started_by = ("--device", "host:64MiB"), AS_OTHER
    yield daemon.started()
    daemon.stop()
    assert "Traceback" not in daemon.log(), daemon.log()


def test_a_plain_users_daemon_tells_a_command_and_a_web_server(plain: UserDaemon, web: WebServer) -> None:
    pipe = plain.home.parent / "pipe"
    os.mkfifo(pipe)
    os.chown(pipe, OTHER, OTHER)
    script = 'echo "$CARPOOL_EVENT $CARPOOL_JOB_ID $CARPOOL_JOB_OUTCOME $(id -u) $(pwd)" > pipe'
    command = f"exec:{shlex.join(['sh', '-c', script])}"
    words = ("submit", "--notify", command, "--notify", f"webhook:{web.url}", "--notify-on", "end", "--", "true")
    submitted = carpool(plain.python_path, plain.home, *words, **AS_OTHER)
    assert submitted.returncode == 0, submitted.stderr
    job = int(submitted.stdout.split()[-1])
    assert pipe.read_text() == f"end {job} succeeded {OTHER} {plain.home.parent}\n"
    assert ((told := web.next())["event"], told["job"], told["outcome"]) == ("end", job, "succeeded")
    assert [notice["state"] for notice in settled(plain, job)] == ["sent", "sent"]
