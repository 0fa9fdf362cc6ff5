"""Jobs in control groups of this machine: what escapes everything else is ended, limits hold, and neighbours go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.daemon.cgroups.group import Group
from tests.adversary.users import python_of_users
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, alive, as_nobody, parent_of, until
from tests.homes import home_directory

#: A process without parent, session and environment of the job's says its number; the main process goes on.
ESCAPES = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        says = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
        os.execve(sys.executable, [sys.executable, "-S", "-c", says], {})
    os._exit(0)
signal.pause()
"""
#: As many processes as there may be; the first one fails when there are so many.
BOMB = """
import os
first = os.getpid()
while True:
    try:
        os.fork()
    except OSError:
        if os.getpid() == first:
            raise
"""
WAITS = "import signal; print('waits', flush=True); signal.pause()"
TAKES = "kept = b'x' * (400 << 20); print('has it', flush=True)"


@pytest.fixture
def groups(group: Group) -> None:
    """They may be made here."""


@pytest.fixture
def limited(make_daemon: Make) -> Callable[[str], Daemon]:
    """Starts a daemon with limits; skips where they do not hold."""

    def start(limits: str) -> Daemon:
        daemon = make_daemon("--device", "host:64MiB", limits=limits).started()
        if problems := daemon.get("/v1/version")["control_groups"]["problems"]:
            pytest.skip(f"limits do not hold on this machine: {problems}")
        return daemon

    return start


def roots(daemon: Daemon) -> list[Path]:
    return [Path(path) for path in json.loads((daemon.home / "control-groups").read_text())]


def shim_of(daemon: Daemon, job: int) -> int:
    return parent_of(daemon.show(job)["pid"])


def escaped(daemon: Daemon) -> tuple[int, int]:
    """A job with a process that escapes, and that process."""
    job = daemon.python(ESCAPES)
    return job, int(next(daemon.lines(job)))


def test_the_first_instruction_is_in_the_group_and_nothing_is_left_of_it(groups: None, daemon: Daemon) -> None:
    job = daemon.submit("cat", "/proc/self/cgroup")
    assert daemon.wait(job)["outcome"] == "succeeded"
    group = next(line for line in daemon.output(job).splitlines() if line.startswith("0::"))
    found = roots(daemon)
    assert group.endswith(f"{found[0].name}/user-{os.getuid()}/job-{job}")
    assert daemon.wait(daemon.submit("/no/such/program"))["outcome"] == "failed"
    daemon.stop()
    assert not any(root.exists() for root in found)


def test_what_escapes_a_killed_shim_is_gone(groups: None, daemon: Daemon) -> None:
    job, pid = escaped(daemon)
    os.kill(shim_of(daemon, job), signal.SIGKILL)
    info = daemon.wait(job)
    assert info["outcome"] == "lost" and not alive(pid)
    assert "of its processes were left, and killed" in info["reason"]["text"]
    assert not (roots(daemon)[0] / f"user-{os.getuid()}" / f"job-{job}").exists()


def test_the_next_daemon_ends_what_is_left(groups: None, daemon: Daemon) -> None:
    job, pid = escaped(daemon)
    other = daemon.python(WAITS, line="waits")
    shim, main = shim_of(daemon, job), daemon.show(other)["pid"]
    daemon.kill()
    os.kill(shim, signal.SIGKILL)
    assert alive(pid)
    daemon.started()
    assert daemon.wait(job)["outcome"] == "lost"
    assert not alive(pid) and alive(main), "the other job is adopted with its group"
    assert daemon.cancelled(other)["outcome"] == "cancelled"


def test_a_job_that_cannot_have_a_group_runs_all_the_same_without_limits(groups: None, daemon: Daemon) -> None:
    Group(roots(daemon)[0]).write("cgroup.max.descendants", "0")
    job = daemon.python("pass")
    assert daemon.wait(job)["outcome"] == "succeeded"
    (line,) = (line for line in daemon.log().splitlines() if f"job {job} is without its control group" in line)
    assert "Resource temporarily unavailable" in line


def test_a_job_that_cannot_enter_its_group_does_not_start_where_limits_hold(
    groups: None, limited: Callable[[str], Daemon], tmp_path: Path
) -> None:
    """Nor does a command that is told of its end."""
    daemon, said = limited("processes = 32\n"), tmp_path / "said"
    daemon.kill()
    daemon.hurry("hooks.control_groups.RETRY_S").started()
    Group(roots(daemon)[0]).write("cgroup.max.descendants", "0")
    info = daemon.wait(daemon.submit("touch", str(said), notify=[{"on": ["end"], "command": ["touch", str(said)]}]))
    assert info["outcome"] == "failed" and "it cannot enter its control group, and the limits in" in str(info), info
    until(lambda: "notice" in daemon.log() and daemon.log().count("is without its control group") > 4)
    assert not said.exists()
    Group(roots(daemon)[0]).write("cgroup.max.descendants", "max")
    assert daemon.wait(daemon.submit("true"))["outcome"] == "succeeded"


def test_a_terminal_outlives_the_group(groups: None, daemon: Daemon) -> None:
    """`carpool run` is the shim: it is not killed with the job."""
    command = [sys.executable, "-m", "carpool.cli", "run", "--home", str(daemon.home), "--"]
    code = "import sys; print(open('/proc/self/cgroup').read()); sys.exit(7)"
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 7, done
    assert f"/{roots(daemon)[0].name}/user-{os.getuid()}/job-1\n" in done.stdout


def test_what_a_notice_leaves_running_is_gone_and_has_had_limits(
    groups: None, limited: Callable[[str], Daemon], tmp_path: Path
) -> None:
    daemon, said = limited("processes = 32\n"), tmp_path / "said"
    os.mkfifo(said)
    says = f"open({str(said)!r}, 'w').write(str(pid))"  # its parent, which ends then
    says = f"import os, signal; read, write = os.pipe(); pid = os.fork()\nif pid: os.read(read, 1); {says}\n"
    says += "else: os.setsid(); os.write(write, b'x'); signal.pause()\n"
    daemon.submit("true", notify=[{"on": ["end"], "command": [sys.executable, "-S", "-c", says]}])
    pid = int(said.read_text())
    until(lambda: not alive(pid))
    command = ["sh", "-c", f"cat /proc/self/cgroup > {said}"]
    daemon.submit("true", notify=[{"on": ["end"], "command": command}])
    assert f"/user-{os.getuid()}/notice-" in said.read_text()
    bomb = f"import sys; sys.tracebacklimit = 0; said = open({str(said)!r}, 'w')\n" + BOMB.replace(
        "raise", "said.write('refused'); said.flush(); raise"
    )
    daemon.submit("true", notify=[{"on": ["end"], "command": [sys.executable, "-S", "-c", bomb]}])
    assert "refused" in said.read_text()


@pytest.mark.parametrize("descriptors", [0, 1100])
def test_a_fork_bomb_fails_and_its_neighbour_goes_on(
    groups: None, limited: Callable[[str], Daemon], monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    """Also in a daemon with more than 1,023 descriptors, which notices ends of jobs, those without their shims, too."""
    monkeypatch.setenv("CARPOOL_TEST_DESCRIPTORS", str(descriptors))
    daemon = limited("processes = 32\n")
    assert daemon.process is not None and len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir())) > descriptors
    neighbour = daemon.python(WAITS, line="waits")
    info = daemon.wait(daemon.python(BOMB))
    assert (info["outcome"], info["exit_code"]) == ("failed", 1)
    assert "it may have 32 (processes in limits.toml)" in info["reason"]["text"]
    assert alive(daemon.show(neighbour)["pid"])
    job, pid = escaped(daemon)
    os.kill(shim_of(daemon, job), signal.SIGKILL)
    assert daemon.wait(job)["outcome"] == "lost"
    until(lambda: not alive(pid))


def test_who_takes_too_much_memory_loses_a_job_and_others_do_not(
    groups: None, limited: Callable[[str], Daemon]
) -> None:
    try:
        python = python_of_users()
    except LookupError as error:
        pytest.skip(str(error))
    daemon = limited('memory = "128MiB"\n')
    root = daemon.python(WAITS, line="waits")
    submit = "daemon.submit('env', 'LD_PRELOAD=', {!r}, '-S', '-c', {!r})"
    small, large = (as_nobody(daemon, submit.format(python, code), NOBODY) for code in (WAITS, TAKES))
    daemon.until_line(small, "waits")
    info = daemon.wait(large)
    assert (info["outcome"], info["signal"]) == ("failed", signal.SIGKILL), daemon.output(large)
    assert "all jobs of a user may have 128 MiB together (memory in limits.toml)" in info["reason"]["text"]
    assert alive(daemon.show(root)["pid"]) and alive(daemon.show(small)["pid"])


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs root, and setpriv")
def test_an_ordinary_user_without_groups_is_told_so() -> None:
    with home_directory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        code = (
            "import sys; from pathlib import Path; from carpool.daemon.cgroups.job_groups import open_groups\n"
            "from carpool.daemon.cgroups.job_groups import GroupLimits; from carpool.protocol.paths import Home\n"
            "print(open_groups(Home(Path(sys.argv[1])), GroupLimits(processes=64))[1])"
        )
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        done = subprocess.run(
            [*user, sys.executable, "-c", code, directory], capture_output=True, text=True, check=False
        )
    if "Permission denied" in done.stderr and "carpool" not in done.stdout:
        pytest.skip("other users may not read this installation")
    assert "jobs have none of their own, and are ended process by process" in done.stdout, done.stderr
    assert "processes in limits.toml does not hold: " in done.stdout and "Permission denied" in done.stdout
