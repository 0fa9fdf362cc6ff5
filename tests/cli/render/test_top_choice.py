"""What keys do in `carpool top`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.cli.render.output import Output
from carpool.cli.render.top_choice import BETWEEN, FOOTER, HELP, LEGEND, MOVES, SORTS, TopChoice
from carpool.cli.render.top_devices import memory_parts
from carpool.cli.render.top_frame import Snapshot, frame_height, screenful, shown_jobs, within
from carpool.protocol.api import JobInfo
from tests.cli.standin import device, job

KEYS = [*MOVES, *"scprqhdu?/yn", "\x1b", "\r", "\x7f", "x"]


def jobs(count: int) -> list[JobInfo]:
    return [
        job(
            number,
            name=f"train-{number}",
            persistent_bytes=number % 7,
            device_us=number % 5,
            submitted_us=count - number,
        )
        for number in range(1, count + 1)
    ]


def snapshot(active: Sequence[JobInfo]) -> Snapshot:
    return Snapshot(10_000_000, "fair", [device([])], list(active), [])


def after(
    keys: Sequence[str], active: Sequence[JobInfo], choice: TopChoice | None = None
) -> tuple[TopChoice, list[str]]:
    """What is chosen in the end, and the actions that were to be done on the way."""
    choice, done = choice or TopChoice(), []
    for key in keys:
        choice, action = choice.pressed(key, shown_jobs(snapshot(active), choice))
        done += [f"{action} {choice.selected}"] if action else []
    return choice, done


def test_a_job_is_cancelled_after_a_question_only() -> None:
    active = jobs(3)
    assert after(["\x1b[B", "\x1b[B", "c", "y"], active)[1] == ["cancel 2"]
    choice, done = after(["j", "c", "n"], active)
    assert not done and choice.said == "nothing was done" and choice.footer() == "nothing was done"
    assert after(["k", "p", "Y"], active)[1] == ["pause 3"]
    choice, done = after(["c", "y"], active)
    assert not done and choice.said == "select a job first: ↑ ↓"
    assert after(["j", "r"], active)[0].footer() == "resume job 1? y: yes, any other key: no"


def test_a_filter_is_typed_and_removed() -> None:
    active = jobs(12)
    choice, _ = after([*"/train-1q", "\x7f"], active)
    assert choice.footer().startswith("filter: train-1_")
    assert [each.id for each in shown_jobs(snapshot(active), choice)] == [1, 10, 11, 12]
    choice, _ = after(["\r", "s", "s"], active, choice)
    assert "sorted by turn time   filter: train-1" in choice.footer()
    assert [each.id for each in shown_jobs(snapshot(active), choice)] == [12, 1, 11, 10]
    assert len(shown_jobs(snapshot(active), after(["\x1b"], active, choice)[0])) == 12


def test_the_help_names_every_key_and_goes_away() -> None:
    active = jobs(1)
    choice, _ = after(["?"], active)
    text = "\n".join(screenful(snapshot(active), Output(), 24, choice))
    assert all(keys in text for keys, _ in HELP) and all(sort in text for sort in SORTS)
    assert not after(["x"], active, choice)[0].helps


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_that_keys_do_is_cut_where_the_screen_is_narrow(width: int) -> None:
    active, output = jobs(2), Output(width)
    told = screenful(snapshot(active), output, 60, TopChoice(helps=True))
    lines = screenful(snapshot(active), output, 24, TopChoice())
    assert max(map(len, [*told, *lines])) <= width and not any("…" in line for line in told)
    assert all(word in " ".join(told).split() for _, what in (*HELP, *LEGEND) for word in what.split())
    room = frame_height(output, 24, TopChoice())
    assert len(lines) == 24 and BETWEEN.join(lines[room:]) == FOOTER


def test_the_help_of_a_small_screen_says_how_to_leave_it() -> None:
    assert screenful(snapshot([]), Output(80), 5, TopChoice(helps=True))[-1] == "any key: back"
    assert len(screenful(snapshot([]), Output(80), 24, TopChoice(helps=True))) <= 24


def test_the_screen_follows_the_selected_job() -> None:
    active = jobs(200)
    choice, _ = after(["\x1b[6~"] * 15, active)
    lines = screenful(snapshot(active), Output(), 20, choice)
    assert len(lines) == 20 and any(line.startswith("»") and f"train-{choice.selected} " in line for line in lines)
    assert "policy fair" in lines[0] and "STATE" in lines[1] and lines[-1].startswith("q quit")


@given(st.lists(st.sampled_from(KEYS), max_size=40), st.integers(0, 15), st.integers(1, 30))
def test_any_keys_leave_a_screen_of_its_height_and_do_nothing_unasked(keys: list[str], count: int, height: int) -> None:
    active = jobs(count)
    choice, done = after(keys, active)
    assert len(screenful(snapshot(active), Output(80), height, choice)) <= max(height, 2)
    assert len(done) <= sum(key in "yY" for key in keys)
    assert choice.selected is None or 1 <= choice.selected <= count


def test_d_and_u_scroll_without_selecting_and_stop_at_the_ends() -> None:
    active = jobs(40)
    seen, choice = snapshot(active), TopChoice()
    for _ in range(9):  # further than there is anything
        choice = within(seen, 19, choice.pressed("d", shown_jobs(seen, choice))[0])
    lines = screenful(seen, Output(), 20, choice)
    assert any("train-40 " in line for line in lines) and "STATE" in lines[1] and choice.selected is None
    choice = within(seen, 19, choice.pressed("u", shown_jobs(seen, choice))[0])
    assert any("train-30 " in line for line in screenful(seen, Output(), 20, choice))
    for _ in range(9):
        choice = within(seen, 19, choice.pressed("u", shown_jobs(seen, choice))[0])
    assert choice.scroll == 0 and screenful(seen, Output(), 20, choice)[2].startswith("host0")


def test_the_help_explains_what_the_bar_shows() -> None:
    shown = "\n".join(screenful(snapshot([]), Output(), 40, TopChoice(helps=True)))
    parts = memory_parts(device([], weights_bytes=1 << 20))
    assert all(part.letter in shown and part.name in shown for part in parts)
