"""What an engine computes, in steps that are worked out by hand, and at random beside a token-by-token account."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carpool.core.model import Micros
from carpool.sim.model.served_engines import EngineRequest
from carpool.sim.services.engine_work import EngineWork


def computed(
    requests: list[EngineRequest], token_us: Micros, further_us: Micros
) -> dict[EngineRequest, tuple[int, int]]:
    """When each request had its first token and its last, in an engine that always computes."""
    work, now, found = EngineWork(token_us, further_us), 0, {}
    coming = sorted(requests, reverse=True)
    while coming or work.left_us is not None:
        done = None if work.left_us is None else now + work.left_us
        if coming and (done is None or coming[-1].at_us < done):
            at = max(now, coming[-1].at_us)
            if work.left_us is not None:
                assert work.computed(at - now, at) == []
            now = at
            work.add(coming.pop())
            continue
        assert done is not None
        for answer in work.computed(done - now, done):
            found[answer.request] = answer.first_us or 0, done
        now = done
    return found


def by_tokens(
    requests: list[EngineRequest], token_us: Micros, further_us: Micros
) -> dict[EngineRequest, tuple[int, int]]:
    """The same, one token at a time."""
    coming, running, found, now = sorted(requests), [], {}, 0
    while coming or running:
        if not running:
            now = max(now, coming[0].at_us)
        if coming and coming[0].at_us < now + (not running):
            now += coming[0].prompt_us
            request = coming.pop(0)
            found[request] = now, now
            running += [[request, request.tokens - 1]] if request.tokens > 1 else []
            continue
        now += token_us + (len(running) - 1) * further_us
        for each in running:
            each[1] -= 1
            found[each[0]] = found[each[0]][0], now
        running = [each for each in running if each[1]]
    return found


def test_one_answer() -> None:
    request = EngineRequest(7, 30, 11)
    assert computed([request], 5, 1) == {request: (37, 87)}


def test_a_prompt_waits_for_the_end_of_the_step_and_then_both_get_tokens() -> None:
    first, second = EngineRequest(0, 30, 11), EngineRequest(42, 20, 3)
    assert computed([first, second], 5, 1) == {
        first: (30, 45 + 20 + 2 * 6 + 5 * 5),  # 3 tokens at 45, 2 with the other one, 5 alone
        second: (65, 77),
    }


def test_without_a_number_of_tokens_there_is_no_first_token() -> None:
    work = EngineWork(5, 1)
    work.add(EngineRequest(0, 30, 0))
    (answer,) = work.computed(30, 30)
    assert answer.first_us is None and work.left_us is None


requests = st.builds(EngineRequest, st.integers(0, 400), st.integers(1, 60), st.integers(1, 30))


@given(st.lists(requests, max_size=8, unique_by=lambda request: request.at_us), st.integers(1, 9), st.integers(0, 4))
def test_the_same_as_token_by_token(asked: list[EngineRequest], token_us: Micros, further_us: Micros) -> None:
    assert computed(asked, token_us, further_us) == by_tokens(asked, token_us, further_us)
