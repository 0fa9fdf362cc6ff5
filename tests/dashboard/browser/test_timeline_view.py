"""The timeline: zoom, movement, selection, and how long a frame takes at its densest."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import BrowserRig, Watched
from tests.dashboard.browser.test_views import quiet

LANES = 8
#: Pixels of the densest screen.
WIDTH = 1600
SHOWN = (
    "({ span: carpoolTimeline.window.span, end: carpoolTimeline.window.end, follow: carpoolTimeline.window.follow })"
)


def test_turns_of_real_jobs_and_what_a_block_says(rig: BrowserRig) -> None:
    first = rig.ready(16, 20, device="host0", name="first")
    second = rig.ready(16, 20, device="host0", name="second")
    watched = rig.open("timeline")
    page = watched.page
    until(
        lambda: page.evaluate(
            "window.carpoolTimeline?.rows.some(row => row.kind === 'lane' && row.blocks.length + row.live.length > 4)"
        )
    )
    canvas = page.get_by_role("application")
    canvas.focus()
    page.keyboard.press("]")
    detail = page.locator("[data-role=detail]")
    detail.get_by_text("duration").wait_for()
    assert any(name in detail.inner_text() for name in (f"{first} first", f"{second} second"))
    page.keyboard.press("[")
    page.keyboard.press("Escape")
    detail.get_by_text("Select a block").wait_for()
    place = page.evaluate(
        """() => { const view = carpoolTimeline, long = block => block[1] !== null && block[1] - block[0] > 5000;
        const row = view.rows.find(row => row.kind === 'lane' && [...row.blocks, ...row.live].some(long));
        const block = [...row.blocks, ...row.live].find(long);
        view.window.show(block[0] - 20000, block[1] + 20000); view._draw();
        return [view.canvas.clientWidth, row.top + 10] }"""
    )
    # The block is in the middle of what is right of the labels.
    canvas.click(position={"x": (92 + place[0]) / 2, "y": place[1]})
    detail.get_by_text("how it ended").or_(detail.get_by_text("the last")).first.wait_for()
    quiet(watched)


def drawn(rig: BrowserRig) -> Watched:
    """The view, of which the page has drawn something."""
    watched = rig.open("timeline")
    until(lambda: watched.page.evaluate("globalThis.carpoolTimeline !== undefined"))
    return watched


def test_zoom_and_movement_by_mouse_keys_and_buttons(rig: BrowserRig) -> None:
    watched = drawn(rig)
    page = watched.page

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate(SHOWN)
        return found

    canvas = page.get_by_role("application")
    box = canvas.bounding_box() or {}
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    begin = shown()
    page.mouse.wheel(0, -400)
    until(lambda: shown()["span"] < begin["span"])
    canvas.focus()
    for key, wanted in (("-", 2.0), ("+", 0.5)):
        before = shown()["span"]
        page.keyboard.press(key)
        assert abs(shown()["span"] / before - wanted) < 0.01
    assert shown()["follow"]
    page.keyboard.press("ArrowLeft")
    assert not shown()["follow"]
    before = shown()["end"]
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 60, steps=4)
    page.mouse.up()
    assert shown()["end"] < before
    page.get_by_role("button", name="Follow now").click()
    assert shown()["follow"]
    for name in ("Zoom in", "Zoom out", "Back in time", "Forward in time", "1 second", "1 day", "10 minutes"):
        page.get_by_role("button", name=name, exact=True).click()
    canvas.focus()
    for _ in range(40):
        page.keyboard.press("+")
    assert shown()["span"] == 20  # microseconds on the whole screen
    page.keyboard.press("f")
    quiet(watched)


def dense(query: str) -> dict[str, Any]:
    """As many blocks as an answer may have: one for each pixel and lane, each of another job."""
    asked = {name: int(values[0]) for name, values in parse_qs(query).items()}
    since, until_us, width = asked["since_us"], asked["until_us"], asked["width"]
    step = (until_us - since) / width
    ends = [round(since + n * step) for n in range(width + 1)]
    lanes = [
        {"device": f"host{lane // 4}", "lane": lane, "turns": [
            [ends[n], ends[n + 1], (n * 7 + lane) % 500, 3, "boundary", round(step)] for n in range(width)
        ]}
        for lane in range(LANES)
    ]  # fmt: skip
    return {"since_us": since, "until_us": until_us, "kept_from_us": None, "lanes": lanes, "moves": [], "requests": []}


def test_a_frame_at_its_densest(rig: BrowserRig, record_property: Callable[[str, object], None]) -> None:
    watched = rig.open("jobs")
    page = watched.page
    page.set_viewport_size({"width": WIDTH + 92 + 176 + 50, "height": 900})
    page.route("**/api/timeline?*", lambda route: route.fulfill(json=dense(urlsplit(route.request.url).query)))
    watched.show("timeline")
    until(lambda: page.evaluate("globalThis.carpoolTimeline?.data.answer != null"))
    page.evaluate("carpoolFrames.length = 0")
    # The canvas is read back: what has only been noted for later would not be counted.
    between = page.evaluate(
        """async () => { const times = []; let last = null;
        for (let n = 0; n < 90; n++) {
            carpoolTimeline.window.pan(-0.001); carpoolTimeline.request();
            await new Promise(requestAnimationFrame);
            carpoolTimeline.context.getImageData(0, 0, 1, 1);
            const now = performance.now(); if (last !== null) times.push(now - last); last = now;
        } return times }"""
    )
    drawn, frames = page.evaluate("[carpoolTimeline.drawn, carpoolFrames]")
    assert drawn <= LANES * (WIDTH + 92) and drawn > LANES * WIDTH * 0.6
    assert len(frames) >= len(between)
    record_property("blocks", drawn)
    record_property("draw_ms", round(statistics.median(frames), 1))
    record_property("frame_ms", round(statistics.median(between), 1))


def test_live_turns_do_not_grow_without_end(rig: BrowserRig) -> None:
    page = drawn(rig).page
    kept = page.evaluate(
        """now => { const view = carpoolTimeline;
        for (let n = 0; n < 30000; n++)
            view.data._append([["host0", 1, n % 7, now + n * 100, now + n * 100 + 50, "boundary"]]);
        return [...view.data._live.values()].reduce((sum, blocks) => sum + blocks.length, 0) }""",
        time.time_ns() // 1000,
    )
    assert kept <= 4100


def test_a_selected_turn_ends_while_it_is_looked_at(rig: BrowserRig) -> None:
    watched = drawn(rig)
    page = watched.page
    begin = time.time_ns() // 1000
    page.evaluate(
        "begin => { carpoolTimeline.data._append([['host0', 77, 5, begin, null, '']]); carpoolTimeline._draw() }", begin
    )
    page.evaluate(
        "() => { const row = carpoolTimeline.rows.find(row => row.lane === 77);"
        " carpoolTimeline.select({ row, block: row.live[0] }) }"
    )
    detail = page.locator("[data-role=detail]")
    detail.get_by_text("goes on").wait_for()
    page.evaluate(
        "begin => { carpoolTimeline.data._append([['host0', 77, 5, begin, begin + 2500, 'forced']]);"
        " carpoolTimeline._draw() }",
        begin,
    )
    detail.get_by_text("2.5 ms").wait_for()
    assert "in the middle of an iteration" in detail.inner_text()
    quiet(watched)
