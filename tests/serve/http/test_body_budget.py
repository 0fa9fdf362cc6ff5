"""Bytes of bodies: for one address, for all, and given back."""

from __future__ import annotations

import pytest

from carpool.serve.http.body_budget import BodyBudget
from carpool.serve.oip.errors import ServerBusy


def test_one_address_gets_half_of_the_budget_and_all_get_the_whole() -> None:
    budget = BodyBudget(100)
    with budget.holding("a") as first, budget.holding("a") as second:
        first.resize(30)
        second.resize(20)
        with pytest.raises(ServerBusy, match=r"requests from a have 50 bytes.* for one address"):
            second.resize(21)
        with budget.holding("b") as third, budget.holding("c") as fourth:
            third.resize(45)
            with pytest.raises(ServerBusy, match="bodies of all requests have 100 bytes") as caught:
                fourth.resize(6)
            assert caught.value.retry_after_s == 1
            assert budget.held() == 95, "what was refused is not held"
            third.resize(10)
            fourth.resize(40)
            assert budget.held() == 100
    assert budget.held() == 0


def test_what_cannot_be_refused_is_counted() -> None:
    budget = BodyBudget(100)
    with budget.holding("a") as first, budget.holding("b") as second:
        first.count(1000)
        with pytest.raises(ServerBusy):
            second.resize(1)
        first.resize(60)  # less than before is never refused
        second.resize(1)
    with pytest.raises(KeyError), budget.holding("a") as first:
        first.resize(50)
        raise KeyError
    assert budget.held() == 0
