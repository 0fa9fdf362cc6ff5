"""The real command against the real daemon, with plain jobs."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from carpool.protocol.packets import readable
from tests.cli.conftest import Cli, heed_the_terminal
from tests.cli.real import DEVICE, daemon_pid, kill_and_wait, stopped_afterwards
from tests.tiers import all_but_first


def test_two_first_submissions_share_one_daemon(carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        racers = [Cli(home).start(["submit", "--json", "true"], stdout=subprocess.PIPE) for _ in range(4)]
        answers = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
        assert sorted(answer["id"] for answer in answers) == [1, 2, 3, 4]
        assert carpool("wait", "1", "2", "3", "4").returncode == 0
        version = json.loads(carpool.ok("up", "--json"))
        assert (version["pid"], version["started"]) == (daemon_pid(home), False)


def test_a_job_sees_where_and_how_it_was_submitted(shared: Cli, tmp_path: Path) -> None:
    shell = 'echo "$PWD|$VIRTUAL_ENV|$LR|$CARPOOL_JOB"'
    job = shared.submit("--", "sh", "-c", shell, cwd=tmp_path, env={"LR": "0.1", "VIRTUAL_ENV": "/venv"})
    assert shared("wait", job).returncode == 0
    assert shared.ok("logs", job) == f"{tmp_path}|/venv|0.1|{job}\n"


def test_exit_codes_pass_through(shared: Cli) -> None:
    assert shared("run", "--", "sh", "-c", "exit 42").returncode == 42
    assert shared("run", "--", "sh", "-c", "kill -9 $$").returncode == 137
    job = shared.submit("--", "sh", "-c", "exit 7")
    assert shared("wait", job).returncode == 7
    assert shared.show(job)["outcome"] == "failed"


def test_run_gives_the_job_its_input_and_output(shared: Cli) -> None:
    child = shared.start(["run", "--", "tr", "a-z", "A-Z"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.communicate("shout\n", timeout=30)[0] == "SHOUT\n"
    assert child.returncode == 0


def test_ctrl_c_reaches_a_job_in_the_foreground(shared: Cli) -> None:
    script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    with Terminal(shared, ["run", "--", "sh", "-c", script]) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        terminal.expect("interrupted")
        assert terminal.end() == 5


def test_a_closed_notebook_or_terminal_is_no_failure(shared: Cli) -> None:
    """Jupyter ends a kernel that does not answer by SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGINT):
        child = shared.start(["run", "--", "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.wait(30) == 128 + number
        (info,) = json.loads(shared("wait", "@", "--json").stdout)["jobs"]
        assert (info["outcome"], info["reason"]["code"]) == ("cancelled", "cancelled")
        assert info["reason"]["text"] == f"closed by its terminal or notebook, or by its user ({number.name})"


def test_ctrl_c_withdraws_a_job_that_has_not_started(shared: Cli) -> None:
    first = shared.submit("--", "sleep", "600")
    with Terminal(shared, ["run", "--after", first, "--", "true"]) as terminal:
        job = str(int(first) + 1)
        terminal.expect(f"job {job} is queued: ")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert shared("wait", job, "--timeout", "20s").returncode == 1
    assert shared.show(job)["outcome"] == "cancelled"
    shared.ok("cancel", first)


def test_dependencies_and_cancelling(shared: Cli) -> None:
    first = shared.submit("--", "sleep", "600")
    second = shared.submit("--after", first, "--", "true")
    shown = shared.show(second)
    assert (shown["phase"], shown["after"]) == ("queued", [int(first)])
    assert shown["reason"]["text"]
    assert shown["reason"]["text"] in shared.ok("ls")
    shared.ok("cancel", first)
    assert shared("wait", first).returncode == 128 + signal.SIGTERM
    again = shared("cancel", first)
    assert (again.returncode, again.stdout) == (5, "")
    assert again.stderr.startswith(f"carpool: job {first} has already ended: cancelled\n")
    assert shared("wait", second).returncode == 1
    assert shared.show(second)["outcome"] == "refused"


def test_policies_are_changed_while_it_runs(own_daemon: Cli) -> None:
    assert json.loads(own_daemon.ok("policy", "srtf", "--json"))["name"] == "srtf"
    assert json.loads(own_daemon.ok("set", "grace_us=5ms", "--json"))["settings"]["grace_us"] == 5000
    now = json.loads(own_daemon.ok("policy", "--json"))
    assert (now["name"], now["settings"]["grace_us"]) == ("srtf", 5000)
    wrong = own_daemon.fails(2, "policy", "lottery")
    for name in now["available"]:
        assert name in wrong
    assert "did you mean 'quantum_us'?" in own_daemon("set", "quantm=5").stderr


def test_the_salus_preset_is_in_force(carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        carpool.ok("up", "--device", DEVICE, "--preset", "salus", "--set", "grace_us=1ms")
        settings = json.loads(carpool.ok("policy", "--json"))["settings"]
        assert (settings["quantum_us"], settings["max_switch_share_ppm"], settings["grace_us"]) == (0, 1_000_000, 1000)


def test_the_daemon_is_told_to_help_with_debugging(carpool: Cli, home: Path) -> None:
    with stopped_afterwards(carpool, home):
        Cli(home).ok("up", "--device", DEVICE, "--debug-close-lanes")
        assert b"--debug-close-lanes" in Path(f"/proc/{daemon_pid(home)}/cmdline").read_bytes().split(b"\0")


@pytest.mark.parametrize(
    ("options", "said"),
    all_but_first(
        [
            (["--policy", "lottery"], "unknown policy 'lottery'"),
            (["--device", "host:900TiB"], "of memory"),
            (["--set", "quantm=5"], "unknown setting 'quantm'; did you mean 'quantum_us'?"),
            (["--device", "host:12parsecs"], "is not a size"),
            (["--store", "400TiB"], "is too large: the devices leave"),
            (["--set", "host_store=400TiB"], "is too large: the devices leave"),
        ],
        stay=2,
    ),
)
def test_a_daemon_that_cannot_start_says_why(carpool: Cli, home: Path, options: list[str], said: str) -> None:
    assert said in carpool.fails(3, "up", *options)
    assert not (home / "carpool.sock").exists()


def test_a_job_larger_than_every_device_is_refused_at_once(shared: Cli) -> None:
    assert "holds 64 MiB" in shared.fails(5, "submit", "--mem", "1GiB", "--", "true")


def test_options_for_a_running_daemon_are_refused(shared: Cli) -> None:
    assert "is already running" in shared.fails(5, "up", "--policy", "fifo")


def test_down_leaves_jobs_alone_and_the_next_daemon_takes_them_over(own_daemon: Cli, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    own_daemon.ok("submit", "--", "sh", "-c", f"read line < {gate}; exit 9")
    with gate.open("w") as writer:  # opens when the job reads: now it runs
        assert "1 job keeps running" in own_daemon.ok("down")
        own_daemon.ok("up", "--device", DEVICE)
        writer.write("go\n")
    assert own_daemon("wait", "1").returncode == 9


def test_a_daemon_that_was_killed_is_started_again_by_the_next_submission(own_daemon: Cli) -> None:
    kill_and_wait(daemon_pid(own_daemon.home))
    assert own_daemon("ls").returncode == 3
    assert own_daemon.ok("submit", "true") == "1\n"


def test_doctor(shared: Cli) -> None:
    report = json.loads(shared("doctor", "--json").stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert str(daemon_pid(shared.home)) in checks["daemon"]["found"]
    assert checks["state directory"]["found"] == str(shared.home)


def test_top_is_live_and_gives_the_terminal_back(shared: Cli) -> None:
    with Terminal(shared, ["top", "--interval", "100ms"]) as terminal:
        terminal.expect("policy fair")
        job = shared.submit("--name", "newcomer", "--", "sleep", "600")
        terminal.expect("newcomer")
        terminal.type("?")
        terminal.expect("memory of a device: persistent, lanes")
        terminal.type(" /newcomer\r")
        terminal.expect("filter: newcomer")
        terminal.type("\x1b[Bc")
        terminal.expect(f"cancel job {job}? y: yes")
        terminal.type("y")
        terminal.expect(f"cancel: job {job}")
        terminal.type("q")
        assert terminal.end() == 0
        assert terminal.seen.startswith("\x1b[?1049h")
        assert terminal.seen.rstrip().endswith("\x1b[?1049l")
    assert shared("wait", job).returncode != 0 and "cancelled" in shared.ok("show", job)


def test_top_gives_the_terminal_back_when_it_is_terminated(shared: Cli) -> None:
    with Terminal(shared, ["top"]) as terminal:
        terminal.expect("policy fair")
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.seen.rstrip().endswith("\x1b[?1049l")


def test_waiting_shows_progress_on_a_terminal_only(shared: Cli) -> None:
    job = shared.submit("--iterations", "10", "--", "sleep", "600")
    with Terminal(shared, ["wait", job]) as terminal:
        terminal.expect(f"job {job} is running")
        terminal.expect("0/10")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "\x1b" not in shared("wait", job, "--timeout", "400ms").stderr
    shared.ok("cancel", job)


class Terminal:
    """A command in a pseudo-terminal of its own, where Ctrl-C means what it does in every terminal.

    The tests themselves may run with SIGINT ignored, as what a script starts in the background does.
    """

    def __init__(self, cli: Cli, arguments: list[str]) -> None:
        self.seen = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            heed_the_terminal()
            env = {**cli.env, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
            command = cli.command(*arguments)
            os.execvpe(command[0], command, env)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, text: str, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        start = len(self.seen)
        while text not in _plain(self.seen[start:]):
            assert time.monotonic() < deadline, f"{text!r} does not come: {self.seen!r}"
            self._read(deadline)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + 30
        while self._read(deadline):
            pass
        handle = os.pidfd_open(self.pid)
        ended = readable(handle, deadline - time.monotonic())
        os.close(handle)
        assert ended, f"it does not end: {self.seen!r}"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self, deadline: float) -> bool:
        ready = readable(self._fd, deadline - time.monotonic())
        try:
            chunk = os.read(self._fd, 65536) if ready else b""
        except OSError:  # EIO: nobody has the other side open any more
            chunk = b""
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
