"""What one user may submit."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import NOBODY, Daemon, Make, Refused, as_nobody, refusal, submission

MIB = 1 << 20
PART = 100_000
WAIT = (sys.executable, "-c", "import signal; signal.pause()")
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
LIMITS = 'jobs = 3\nsubmission_size = "1MiB"\nsubmissions_size = "2MiB"\nretries = 5\n'


@pytest.fixture
def strict(make_daemon: Make) -> Daemon:
    return make_daemon(limits=LIMITS).started()


def refused(daemon: Daemon, **fields: Any) -> Refused:
    return refusal(daemon.submit, *WAIT, **fields)


def env(size: int) -> dict[str, str]:
    """So large as a whole; the kernel takes no single text of 128 KiB."""
    return {"PATH": os.environ["PATH"]} | {f"PART_{begin}": "x" * PART for begin in range(0, size, PART)}


def test_a_submission_that_is_too_large_or_tried_again_for_ever_is_refused(strict: Daemon) -> None:
    answer = refused(strict, env=env(MIB))
    assert (answer.status, answer.code) == (413, "submission_too_large")
    assert "1 MiB are allowed" in answer.message and "limits.toml" in answer.hint
    assert refused(strict, name="x" * 300).code == "bad_name"
    assert refused(strict, after=[1] * 1001).code == "bad_after"
    assert refused(strict, device="host0,host0").code == "bad_device"
    assert strict.get("/v1/jobs")["jobs"] == []
    answer = refused(strict, retries=1 << 62)
    assert (answer.status, answer.code) == (400, "bad_retries")
    assert "5 times at most" in answer.message and "--retries 5" in answer.hint


def test_only_so_many_jobs_of_a_user_wait_or_run(strict: Daemon) -> None:
    jobs = [strict.submit(*WAIT) for _ in range(2)]
    error = refusal(strict.post, "/v1/submissions", {"jobs": [submission(*WAIT)] * 2, "env": {}, "follows": []})
    assert error.answer == (429, "too_many_jobs")
    assert "has 2 jobs that have not ended, and submits 2 more; 3 are allowed" in error.message
    jobs.append(strict.submit(*WAIT))
    assert refused(strict).code == "too_many_jobs"
    assert [job["id"] for job in strict.get("/v1/jobs")["jobs"]] == jobs, "nothing of the others was lost"
    for number in set(range(1, jobs[-1] + 2)) - set(jobs):
        with pytest.raises(Refused, match=f"there is no job {number}") as error:
            strict.show(number)
        assert error.value.code == "unknown_job", "it was never a job, so none has been removed"
    strict.cancel(jobs[0])
    strict.wait(jobs[0])
    strict.submit(*WAIT)


def test_the_bytes_of_all_of_them_are_counted_also_after_a_restart(strict: Daemon) -> None:
    strict.wait(strict.submit("true", env=env(900_000)))  # it counts no more
    for _ in range(2):
        strict.submit(*WAIT, env=env(900_000))
    assert refused(strict, env=env(900_000)).code == "submissions_too_large"
    strict.restarted()
    answer = refused(strict, env=env(900_000))
    assert (answer.status, answer.code) == (429, "submissions_too_large") and "2 MiB are allowed" in answer.message
    strict.submit(*WAIT)


def test_registered_models_are_counted_too(strict: Daemon) -> None:
    def put(name: str, size: int) -> int:
        body = {"factory": "shop:resnet", "python": "/usr/bin/python3", "cwd": "/", "env": env(size)}
        return int(strict.put(f"/v1/models/{name}?replace=1", body)["variables"])

    assert refusal(put, "huge", 2 * MIB).answer == (413, "submission_too_large")
    for _ in range(3):
        assert put("first", 900_000) and put("second", 900_000), "one that is replaced counts no more"
    error = refusal(put, "third", 900_000)
    assert error.answer == (429, "models_too_large") and "model rm" in error.hint
    assert put("third", 1000)


def test_models_that_are_registered_at_once_are_counted_too(strict: Daemon) -> None:
    def put(name: str) -> bool:
        body = {"factory": "shop:resnet", "python": "/usr/bin/python3", "cwd": "/", "env": env(900_000)}
        try:
            strict.put(f"/v1/models/{name}", body)
        except Refused as error:
            assert error.code == "models_too_large"
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(put, "abcdef")) == 2


def test_an_environment_that_many_jobs_have_in_common_counts_for_each_before_it_is_copied(strict: Daemon) -> None:
    many = {"jobs": [submission("true") | {"env": {}}] * 3, "env": env(900_000), "follows": []}
    error = refusal(strict.post, "/v1/submissions", many)
    assert error.answer == (429, "submissions_too_large")
    assert "the environment of 3 jobs takes" in error.message


def test_a_user_who_has_submitted_much_goes_on_at_a_rate(make_daemon: Make) -> None:
    daemon = make_daemon(limits="submissions_at_once = 4\nsubmissions_per_s = 1\n").started()
    many = {"jobs": [submission(*WAIT)] * 5, "env": {}, "follows": []}
    error = refusal(daemon.post, "/v1/submissions", many)
    assert error.code == "submitted_too_fast" and "submit fewer jobs at once" in error.hint
    numbers = daemon.post("/v1/submissions", many | {"jobs": [submission(*WAIT)] * 4})["ids"]
    for number in numbers:
        daemon.cancel(number)  # jobs that have ended count as well
    last: Refused | None = None
    while last is None:  # one more may be submitted for each second that has passed
        try:
            daemon.submit(*WAIT)
        except Refused as again:
            last = again
    while last is not None and last.status == 429:
        assert last.code == "submitted_too_fast" and "submit again in 1 s" in last.hint, "limits.toml" in last.hint
        try:
            last = None if daemon.submit(*WAIT) else last
        except Refused as again:
            last = again
    assert last is None, last


def test_users_do_not_count_for_each_other(strict: Daemon) -> None:
    for _ in range(3):
        strict.submit(*WAIT)
    assert isinstance(as_nobody(strict, "attempt(lambda: daemon.submit('true', cwd='/tmp'))"), int)


@needs_proc
def test_large_submissions_do_not_stay_in_memory(daemon: Daemon) -> None:
    first, large = daemon.submit(*WAIT), ["true", *["x" * PART] * 17]
    for _ in range(3):  # what the daemon needs in any case
        daemon.cancel(daemon.submit(*large, after=[first]))
    before = resident(daemon)
    for _ in range(24):
        daemon.cancel(daemon.submit(*large, after=[first]))
    assert resident(daemon) - before < 20 * MIB
    assert len(daemon.get("/v1/jobs")["jobs"][-1]["command"][1]) < 5000


def resident(daemon: Daemon) -> int:
    assert daemon.process is not None
    text = Path(f"/proc/{daemon.process.pid}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Limits of users and groups on a daemon: set while it runs, durable, and refused to other users


ME = user_name(os.getuid())


def change(daemon: Daemon, **settings: int | None) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    found: dict[str, Any] = daemon.put("/v1/policy", {"settings": named})["settings"]
    return found


def limits(daemon: Daemon, query: str = "") -> dict[str, tuple[int | None, int | None]]:
    listed = daemon.get(f"/v1/limits{query}")["limits"]
    return {limit["name"]: (limit["used"], limit["most"]) for limit in listed}


def test_a_limit_holds_at_once_is_told_and_survives_the_daemon(daemon: Daemon) -> None:
    change(daemon, user_running=1, group__vision=1)
    first, second = (daemon.submit("sleep", "600") for _ in range(2))
    daemon.until("ProcessStarted", first)
    wanted = {"code": "user_running", "text": f"user {ME} runs 1 job of at most 1 (user_running)"}
    assert daemon.show(second)["reason"] == wanted
    daemon.restarted()
    assert daemon.show(second)["reason"] == wanted
    found = limits(daemon)
    assert found["user_running"] == (1, 1) and found["user_devices"] == (1, None)
    assert found["group.vision"] == (0, 1) and found["jobs"] == (2, 10_000)
    assert change(daemon, **{f"user_running__{ME}": 2})[f"user_running.{ME}"] == 2
    daemon.until("ProcessStarted", second)
    assert limits(daemon)["user_running"] == (2, 2)


def test_jobs_of_a_group_run_so_many_at_once(daemon: Daemon) -> None:
    refused = refusal(daemon.submit, "true", group="vision")
    assert refused.code == "unknown_group" and "carpool set group.NAME=2" in refused.hint
    change(daemon, group__vision=1)
    first, second = (daemon.submit("sleep", "600", group="vision") for _ in range(2))
    daemon.until("ProcessStarted", first)
    text = "group vision runs 1 job of at most 1 (group.vision)"
    assert daemon.show(second)["reason"] == {"code": "group", "text": text} and daemon.show(second)["group"] == "vision"
    assert daemon.request("PATCH", f"/v1/jobs/{second}", {"group": ""})["group"] == ""
    daemon.until("ProcessStarted", second)
    assert "group.vision" not in change(daemon, group__vision=None)
    assert daemon.request("PATCH", f"/v1/jobs/{first}", {"weight": 7})["weight"] == 7, (
        "its group has been taken away meanwhile"
    )


def test_wrong_limits_are_refused_with_what_there_is(daemon: Daemon) -> None:
    for name, text in (
        ("grup.vision", "limits with a name are group.NAME and user_running.USER and user_devices.USER"),
        ("user_running.no-such-user", "there is no user 'no-such-user' on this machine"),
        ("group.a b", "is not a name of a group"),
        ("user_runing", "did you mean 'user_running'?"),
    ):
        assert text in refusal(daemon.put, "/v1/policy", {"settings": {name: 1}}).message, name
    for user in ("no-such-user", "%00", "9" * 5000, "99999999999"):
        assert refusal(daemon.get, f"/v1/limits?user={user}").answer == (404, "unknown_user"), user[:40]
    assert "Traceback" not in daemon.log()


def test_other_users_may_not_set_limits_and_see_their_own(daemon: Daemon) -> None:
    change(daemon, user_running=3, **{f"user_running__{NOBODY}": 2})
    daemon.submit("sleep", "600")
    setting = "attempt(lambda: daemon.put('/v1/policy', {'settings': {'user_running': 100}}))"
    assert as_nobody(daemon, setting) == "not_operator"
    assert as_nobody(daemon, "attempt(lambda: daemon.get('/v1/limits?user=root'))") == "not_operator"
    assert as_nobody(daemon, "attempt(lambda: daemon.get('/v1/limits?user=no-such-user'))") == "not_operator"
    own = {limit["name"]: limit for limit in as_nobody(daemon, "daemon.get('/v1/limits')['limits']")}
    assert (own["user_running"]["most"], own["jobs"]["used"]) == (2, 0)
    assert limits(daemon, f"?user={NOBODY}")["user_running"] == (0, 2)
    assert limits(daemon)["jobs"] == (1, 10_000)
