"""How fast one user may submit."""

from __future__ import annotations

from carpool.daemon.jobs.submissions import SubmissionRate


def test_a_user_may_submit_so_many_at_once_and_goes_on_at_the_rate() -> None:
    now = [50.0]
    rate = SubmissionRate(100, 8, lambda: now[0])
    assert rate.left(1000) == 100
    rate.spend(1000, 95)
    assert rate.left(1000) == 5 and rate.left(1001) == 100, "users do not count for each other"
    now[0] += 1 / 16
    assert rate.left(1000) == 5
    now[0] += 1 / 16
    assert rate.left(1000) == 6, "halves of a job are not lost by asking"
    now[0] += 3600
    assert rate.left(1000) == 100
