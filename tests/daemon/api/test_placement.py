"""Real daemons with several devices: gangs, also after a restart, and what the API says about placement and lanes."""

from __future__ import annotations

import sys

import pytest

from tests.daemon.daemon_harness import Daemon, Make, refusal, submission, until

THREE = ("--device", "host:64MiB", "--device", "host:32MiB", "--device", "host:16MiB")
SHOW = "import os; print(os.environ['CARPOOL_DEVICES'])"


@pytest.fixture
def three(make_daemon: Make) -> Daemon:
    return make_daemon(*THREE).started()


def devices(daemon: Daemon) -> dict[str, int | None]:
    return {device["id"]: device["alone"] for device in daemon.get("/v1/devices")["devices"]}


def test_a_job_for_several_devices_is_told_of_all_of_them(three: Daemon) -> None:
    job = three.python(SHOW, gpus=2)
    info = three.wait(job)
    assert info["outcome"] == "succeeded" and info["devices"] == ["host0", "host1"]
    assert three.output(job).strip() == "host0,host1"
    single = three.python(SHOW, device="host2,host1")
    assert three.wait(single)["device"] == "host1"
    assert three.output(single).strip() == "host1"


def test_it_holds_them_over_a_restart_and_gives_them_back(three: Daemon) -> None:
    job = three.fake("attach", "turn", "say:ready", "pause", gpus=3, line="ready")
    waiting = three.python("pass", device="host2")
    assert set(devices(three).values()) == {job}
    three.restarted()
    assert set(devices(three).values()) == {job}
    assert three.show(job)["devices"] == ["host0", "host1", "host2"]
    assert (
        three.show(waiting)["reason"]["text"] == f"job {job} has exclusive use of host2: it was submitted for 3 devices"
    )
    three.cancel(job)
    assert three.wait(waiting)["outcome"] == "succeeded"


def test_what_a_placement_was_decided_on_is_kept(three: Daemon) -> None:
    job = three.python("pass", ended=True)
    made = three.get(f"/v1/jobs/{job}/placement")
    assert [(row["device"], row["chosen"]) for row in made["rows"]] == [
        ("host0", True),
        ("host1", False),
        ("host2", False),
    ]
    assert made["policy"] == "magm" and made["rows"][0]["free"] == 64 << 20
    three.restarted()
    assert three.get(f"/v1/jobs/{job}/placement") == made


def test_for_a_job_that_waits_it_is_the_present(three: Daemon) -> None:
    three.fake("attach", "turn", "say:ready", "pause", exclusive=True, device="host0", line="ready")
    waiting = three.python("pass", persistent_bytes=60 << 20)
    rows = three.get(f"/v1/jobs/{waiting}/placement")["rows"]
    assert {row["device"]: row["refusal"]["code"] for row in rows} == {
        "host0": "exclusive",
        "host1": "memory",
        "host2": "memory",
    }


def test_elements_of_arrays_are_named_as_people_name_them(three: Daemon) -> None:
    waits = submission(sys.executable, "-c", "import time; time.sleep(600)", device="host0", index=3)
    (holder,) = three.post("/v1/submissions", {"jobs": [waits], "arrays": [[0]]})["ids"]
    other = three.python("pass", device="host0", exclusive=True)
    made = three.get(f"/v1/jobs/{other}/placement")
    assert made["elements"] == {str(holder): f"{holder}_3"}
    assert f"job {holder}_3 there" in three.show(other)["reason"]["text"]


def test_an_unplaced_job_has_no_record(three: Daemon) -> None:
    first = three.fake("attach", "pause")
    later = three.python("pass", after=[first])
    three.cancelled(later)
    assert refusal(three.get, f"/v1/jobs/{later}/placement").answer == (404, "no_placement")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"gpus": 0}, "bad_gpus"),
        ({"gpus": 4}, "too_many_devices"),
        ({"gpus": 2, "device": "host0"}, "too_many_devices"),
        ({"gpus": 3, "persistent_bytes": 20 << 20}, "too_large"),
        ({"device": "host0,gpu7"}, "unknown_device"),
        ({"device": "host0,"}, "unknown_device"),
        ({"gpus": 2, "checkpoint": True}, "checkpoint_devices"),
    ],
)
def test_what_can_never_run_is_refused(three: Daemon, fields: dict[str, object], code: str) -> None:
    assert refusal(three.python, "pass", **fields).code == code


def test_policies_and_settings_are_changed_and_stay(three: Daemon) -> None:
    assert three.get("/v1/policy")["placement"] == "magm"
    answer = three.put("/v1/policy", {"placement": "first-fit", "settings": {"max_jobs": 3}})
    assert answer["placement"] == "first-fit" and "lug" in answer["placements"]
    assert "unknown placement policy 'nonsense'" in refusal(three.put, "/v1/policy", {"placement": "nonsense"}).message
    assert answer["name"] == three.get("/v1/policy")["name"] == "fair"
    three.put("/v1/policy", {"name": "fifo"})
    three.restarted()
    info = three.get("/v1/policy")
    assert (info["placement"], info["settings"]["max_jobs"], info["name"]) == ("first-fit", 3, "fifo")


def test_waiting_jobs_are_in_the_order_in_which_they_get_the_turn(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:256MiB", "--policy", "sjf", "--set", "max_lanes=1").started()
    holder = daemon.fake("attach", "turn", "say:holds", "pause", duration_us=1, line="holds")
    long = daemon.fake("attach", "turn", duration_us=100_000_000)
    short = daemon.fake("attach", "turn", duration_us=2_000_000)
    until(lambda: len(daemon.get("/v1/devices")["devices"][0]["lanes"][0]["waiting"]) == 2)
    (lane,) = daemon.get("/v1/devices")["devices"][0]["lanes"]
    assert (lane["holder"], lane["waiting"]) == (holder, [short, long])
