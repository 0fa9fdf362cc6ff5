"""A daemon under a policy of one's own, and what becomes of it when the file does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from carpool.sim.replay import replay_journal
from tests.daemon.daemon_harness import Daemon, Make, Refused
from tests.tiers import all_but_first

ROOT = Path(__file__).resolve().parents[3]
CLASS = "from carpool.core.policies import BasePolicy\nclass Mine(BasePolicy):\n    settings = ('patience_us',)\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CLASS)
    path.chmod(0o644)
    return path


def test_a_policy_of_ones_own_with_its_settings_outlives_the_daemon(daemon: Daemon, policy: Path) -> None:
    name = f"{policy}:Mine"
    daemon.put("/v1/policy", {"name": name, "settings": {"patience_us": 5, "grace_us": 7}})
    daemon.terminate()
    info = daemon.started().get("/v1/policy")
    assert (info["name"], info["settings"]["patience_us"], info["settings"]["grace_us"]) == (name, 5, 7)
    assert daemon.wait(daemon.fake("attach", "iterate:3"))["outcome"] == "succeeded"
    daemon.terminate()
    policy.write_text(CLASS.replace("patience_us", "calm_us"))
    settings = daemon.started().get("/v1/policy")["settings"]
    assert "patience_us" not in settings and settings["grace_us"] == 7, "a setting that it has no longer"


def test_a_daemon_may_start_with_it(make_daemon: Make, policy: Path) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--policy", f"{policy}:Mine", "--set", "patience_us=9us").started()
    assert daemon.get("/v1/policy")["settings"]["patience_us"] == 9


def test_a_setting_changes_without_the_file(daemon: Daemon, policy: Path) -> None:
    """The policy that is in force stays as it was loaded."""
    daemon.put("/v1/policy", {"name": f"{policy}:Mine"})
    policy.unlink()
    info = daemon.put("/v1/policy", {"settings": {"patience_us": 3}})
    assert (info["name"], info["settings"]["patience_us"]) == (f"{policy}:Mine", 3)
    with pytest.raises(Refused, match="there is no file"):
        daemon.put("/v1/policy", {"name": f"{policy}:Mine"})


LOST = [
    pytest.param(lambda path: path.unlink(), "there is no file", id="it is gone"),
    pytest.param(lambda path: path.write_text("class Mine("), "SyntaxError", id="it is broken"),
    pytest.param(lambda path: path.chmod(0o666), "chmod go-w", id="others may write to it"),
]


@pytest.mark.parametrize(("change", "said"), all_but_first(LOST))
def test_a_start_without_its_policy_says_what_to_do_and_loses_nothing(
    daemon: Daemon, policy: Path, change: Callable[[Path], object], said: str
) -> None:
    done, waiting = daemon.submit("true", ended=True), daemon.python("import signal; signal.pause()")
    daemon.put("/v1/policy", {"name": f"{policy}:Mine", "settings": {"patience_us": 5}})
    daemon.until("ProcessStarted", waiting)
    daemon.terminate()
    change(policy)

    error = daemon.failed()
    assert error["code"] == "policy_lost"
    assert str(policy) in error["message"] and said in error["message"]
    assert "carpool up --policy fair" in error["hint"]

    policy.unlink(missing_ok=True)
    policy.write_text(CLASS)
    policy.chmod(0o644)
    assert daemon.started().get("/v1/policy")["settings"]["patience_us"] == 5
    daemon.cancel(waiting)
    outcomes = [daemon.wait(job)["outcome"] for job in (done, waiting)]
    assert outcomes == ["succeeded", "cancelled"]


def test_another_policy_on_the_command_line_gets_it_going(make_daemon: Make, home: Path, policy: Path) -> None:
    """Even the default one, named: what was said counts, not whether it differs from the defaults."""
    daemon = make_daemon().started()
    job = daemon.submit("true", ended=True)
    daemon.put("/v1/policy", {"name": f"{policy}:Mine"})
    daemon.terminate()
    policy.unlink()
    daemon.failed()
    other = make_daemon("--device", "host:256MiB", "--policy", "fair").started()
    assert other.get("/v1/policy")["name"] == "fair"
    assert other.show(job)["outcome"] == "succeeded"
    other.put("/v1/policy", {"name": "fair"})
    other.terminate()
    assert make_daemon(at=home).started().get("/v1/policy")["name"] == "fair"


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_a_file_that_others_may_change_is_refused(daemon: Daemon, policy: Path, mode: int) -> None:
    policy.chmod(mode)
    with pytest.raises(Refused, match=f"others may write to {policy}; chmod go-w {policy}") as refused:
        daemon.put("/v1/policy", {"name": f"{policy}:Mine"})
    assert (refused.value.status, refused.value.code) == (400, "bad_policy")
    assert daemon.get("/v1/policy")["name"] == "fair"


def test_the_command_line_sends_the_whole_path(daemon: Daemon, policy: Path) -> None:
    """The daemon lives in another directory than the user."""
    env = os.environ | {"CARPOOL_HOME": str(daemon.home), "PYTHONPATH": str(ROOT / "src")}
    for words in (["policy", "./mine.py:Mine"], ["set", "patience_us=1ms"]):
        command = [sys.executable, "-P", "-m", "carpool.cli", *words]
        done = subprocess.run(command, cwd=policy.parent, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    info = daemon.get("/v1/policy")
    assert (info["name"], info["settings"]["patience_us"]) == (f"{policy}:Mine", 1000)


def test_a_policy_that_fails_does_no_harm_and_says_so(daemon: Daemon, policy: Path) -> None:
    policy.write_text(f"{CLASS}    def turn_key(self, view, job):\n        return 1 / 0\n")
    assert daemon.put("/v1/policy", {"name": f"{policy}:Mine"})["fault"] is None
    for job in [daemon.fake("attach", "rounds:5") for _ in range(2)]:
        assert daemon.wait(job)["outcome"] == "succeeded"
    assert daemon.get("/v1/policy")["fault"] == "turn_key failed: ZeroDivisionError: division by zero"
    assert daemon.log().count("the policy failed") == 1


def test_waiting_times_go_on_after_a_restart(daemon: Daemon) -> None:
    """What policies see of a job's age is its age, not that of the daemon."""
    daemon.python("import time; time.sleep(60)")
    waiting = daemon.python("pass", after=[1])
    daemon.restarted()
    again = daemon.until_event(
        lambda e: e["kind"] == "Submitted" and e["job"] == waiting and e["data"]["waited_us"] > 0
    )
    age = time.time_ns() // 1000 - daemon.show(waiting)["submitted_us"]
    assert 0 < again["data"]["waited_us"] <= age


# A policy of a user's that never answers costs the daemon a second, once; a replay decides what the daemon decided


LOOPING = """
from carpool.policies import BasePolicy

class Looping(BasePolicy):
    name = "looping"

    def admission_key(self, view, job):
        while job.arrival >= 2:
            pass
        return (-job.arrival,)
"""


@pytest.mark.filterwarnings("error")
def test_a_policy_that_loops_is_disabled(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "looping.py").write_text(LOOPING)
    daemon.put("/v1/policy", {"name": f"{tmp_path / 'looping.py'}:Looping"})
    jobs = [daemon.fake("attach", "turn", "release") for _ in range(5)]
    for job in jobs:
        assert daemon.wait(job)["outcome"] == "succeeded"
    assert "admission_key took longer than 1 s; it is not used again" in daemon.get("/v1/policy")["fault"]
    (timeout,) = [event for event in daemon.events() if event["kind"] == "PolicyTimedOut"]
    assert timeout["data"]["sort"] == "policy"
    daemon.kill()
    found = replay_journal(daemon.home)
    assert found.lives == 1 and found.difference is None, found.difference
