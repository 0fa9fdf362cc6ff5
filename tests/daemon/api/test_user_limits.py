"""Limits of users and groups on a daemon: set while it runs, durable, and refused to other users."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from carpool.protocol.display import user_name
from tests.daemon.daemon_harness import NOBODY, Daemon, Refused, as_nobody

ME = user_name(os.getuid())


def change(daemon: Daemon, **settings: int | None) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    found: dict[str, Any] = daemon.put("/v1/policy", {"settings": named})["settings"]
    return found


def limits(daemon: Daemon, query: str = "") -> dict[str, tuple[int | None, int | None]]:
    listed = daemon.get(f"/v1/limits{query}")["limits"]
    return {limit["name"]: (limit["used"], limit["most"]) for limit in listed}


def test_a_limit_holds_at_once_is_told_and_survives_the_daemon(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    change(daemon, user_running=1, group__vision=1)
    first, second = (daemon.submit("sleep", "600") for _ in range(2))
    daemon.until("ProcessStarted", first)
    wanted = {"code": "user_running", "text": f"user {ME} runs 1 job of at most 1 (user_running)"}
    assert daemon.show(second)["reason"] == wanted
    daemon.kill()
    daemon.started()
    assert daemon.show(second)["reason"] == wanted
    found = limits(daemon)
    assert found["user_running"] == (1, 1) and found["user_devices"] == (1, None)
    assert found["group.vision"] == (0, 1) and found["jobs"] == (2, 10_000)
    assert change(daemon, **{f"user_running__{ME}": 2})[f"user_running.{ME}"] == 2
    daemon.until("ProcessStarted", second)
    assert limits(daemon)["user_running"] == (2, 2)


def test_jobs_of_a_group_run_so_many_at_once(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    with pytest.raises(Refused) as refused:
        daemon.submit("true", group="vision")
    assert refused.value.code == "unknown_group" and "carpool set group.NAME=2" in refused.value.hint
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


def test_wrong_limits_are_refused_with_what_there_is(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    for name, text in (
        ("grup.vision", "limits with a name are group.NAME and user_running.USER and user_devices.USER"),
        ("user_running.no-such-user", "there is no user 'no-such-user' on this machine"),
        ("group.a b", "is no name of a group"),
        ("user_runing", "did you mean 'user_running'?"),
    ):
        with pytest.raises(Refused) as refused:
            daemon.put("/v1/policy", {"settings": {name: 1}})
        assert text in refused.value.message, name
    for user in ("no-such-user", "%00", "9" * 5000, "99999999999"):
        with pytest.raises(Refused) as refused:
            daemon.get(f"/v1/limits?user={user}")
        assert (refused.value.status, refused.value.code) == (404, "unknown_user"), user[:40]
    assert "Traceback" not in daemon.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_other_users_may_not_set_limits_and_see_their_own(make_daemon: Callable[..., Daemon]) -> None:
    daemon = make_daemon("--device", "host:64MiB").started()
    daemon.home.parent.chmod(0o755)
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
