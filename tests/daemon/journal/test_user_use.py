"""What users have used decides under `fair` who is placed next, also under the next daemon."""

from __future__ import annotations

from tests.daemon.daemon_harness import Daemon, Make, as_nobody


def used_us(daemon: Daemon) -> int:
    return int(daemon.get("/v1/limits")["used_us"])


def used_something(daemon: Daemon) -> None:
    assert daemon.wait(daemon.fake("attach", "rounds:50"))["outcome"] == "succeeded"


def test_use_is_counted_and_survives_the_daemon(daemon: Daemon) -> None:
    assert used_us(daemon) == 0
    used_something(daemon)
    before = used_us(daemon)
    daemon.python("pass")  # what is told to be on the disk is there after all that was to be written before
    daemon.restarted()
    assert 0 < used_us(daemon) <= before
    used_something(daemon)
    assert used_us(daemon) > before // 2
    assert daemon.put("/v1/policy", {"settings": {"use_half_life_us": 0}}) and used_us(daemon) == 0


def test_who_has_used_less_is_placed_first(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--set", "max_jobs=1").started()
    used_something(daemon)
    blocker = daemon.submit("sleep", "600")
    own = [daemon.submit("true") for _ in range(3)]
    theirs = as_nobody(daemon, "daemon.submit('true', cwd='/')")
    daemon.restarted()
    daemon.cancel(blocker)
    started = [daemon.wait(job)["started_us"] for job in (theirs, *own)]
    assert started == sorted(started), "the other user's job first, though it came last"
