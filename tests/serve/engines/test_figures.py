"""Figures of answers, from the bytes that pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.protocol.metrics import new_registry
from carpool.serve.engines.figures import EVENT_STREAM, Answer, EngineFigures

EVENTS = b'data: {"a": 1}\n\n' * 3 + b"data: [DONE]\n\n"


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


@given(st.lists(st.integers(0, len(EVENTS))))
def test_tokens_are_events_however_they_are_cut(cuts: list[int]) -> None:
    answer, places = Answer(EVENT_STREAM, 0.0, Clock()), [0, *sorted(cuts), len(EVENTS)]
    for begin, end in pairwise(places):
        answer.passes(EVENTS[begin:end])
    assert answer.tokens == 3


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\n\r\n"])
def test_times_of_a_stream(ends: bytes) -> None:
    clock = Clock()
    answer = Answer(EVENT_STREAM, clock(), clock)
    for wait_s in (0.5, 0.1, 0.3):
        clock.now_s += wait_s
        answer.passes(b"data: {}" + ends)
    assert answer.first_token_s == pytest.approx(0.5) and answer.token_s == pytest.approx(0.2)


def test_usage_says_it_better() -> None:
    answer = Answer("application/json", 0.0, Clock())
    answer.passes(b'{"choices": [], "usage": {"completion_tokens": 17, "x": 1}}')
    assert answer.tokens == 17 and answer.first_token_s is None and answer.token_s is None


def test_the_last_minute() -> None:
    clock = Clock()
    figures = EngineFigures(new_registry(), clock)
    assert figures.last_minute("one") == (None, 0.0)
    for wait_s in (0.1, 0.2, 0.3):
        answer = figures.answer(EVENT_STREAM, clock())
        clock.now_s += wait_s
        answer.passes(b"data: {}\n\n" * 20)
        figures.ended("one", "200", answer)
    figures.ended("one", "engine_lost")
    assert figures.last_minute("one") == (200_000, 1.0)
    clock.now_s += 61
    assert figures.last_minute("one") == (None, 0.0)


@pytest.mark.parametrize("media", ["application/json", EVENT_STREAM])
def test_an_answer_about_streams_has_no_tokens(media: str) -> None:
    figures, answer = EngineFigures(new_registry(), Clock()), Answer(media, 0.0, Clock())
    answer.passes(b'{"text": "a stream ends by data: [DONE]"}')
    figures.ended("one", "200", answer)
    assert answer.tokens == 0
