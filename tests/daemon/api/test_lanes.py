"""What GET /v1/devices says of lanes."""

from __future__ import annotations

from tests.daemon.daemon_harness import Make, until


def test_waiting_jobs_are_in_the_order_in_which_they_get_the_turn(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:256MiB", "--policy", "sjf", "--set", "max_lanes=1").started()
    holder = daemon.fake("attach", "turn", "say:holds", "pause", duration_us=1, line="holds")
    long = daemon.fake("attach", "turn", duration_us=100_000_000)
    short = daemon.fake("attach", "turn", duration_us=2_000_000)
    until(lambda: len(daemon.get("/v1/devices")["devices"][0]["lanes"][0]["waiting"]) == 2)
    (lane,) = daemon.get("/v1/devices")["devices"][0]["lanes"]
    assert (lane["holder"], lane["waiting"]) == (holder, [short, long])
