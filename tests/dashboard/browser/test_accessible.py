"""axe-core finds nothing in any view, light and dark; with CARPOOL_PICTURES=docs/pictures pictures are made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import WIDE, BrowserRig, Watched, scene
from tests.tiers import all_but_first

AXE = (Path(__file__).parent / "vendor/axe-core/axe.min.js").read_text()
#: Where pictures go; by default there are none.
PICTURES = os.environ.get("CARPOOL_PICTURES")
PICTURED = ("devices", "timeline", "jobs")
PICTURE, TALL = {"width": 1280, "height": 620}, {"width": 1280, "height": 980}


def violations(watched: Watched) -> list[str]:
    watched.page.evaluate(AXE)
    found = watched.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes']]}" for one in found]


def picture(watched: Watched, view: str, path: Path) -> None:
    watched.page.set_viewport_size(PICTURE if view != "devices" else TALL)
    if view == "timeline":
        watched.page.get_by_role("button", name="10 seconds").click()
    watched.page.evaluate("document.activeElement?.blur()")
    watched.page.wait_for_timeout(3000)  # a moment later charts and rows have something in them
    watched.page.screenshot(path=str(path))
    watched.page.set_viewport_size(WIDE)


@pytest.mark.parametrize("scheme", all_but_first(["dark", "light"]))
def test_no_view_shuts_anybody_out(rig: BrowserRig, scheme: str) -> None:
    jobs = scene(rig)
    watched = rig.open("devices", scheme=scheme)
    if PICTURES:
        watched.page.wait_for_timeout(15_000)  # for something to be seen in the charts
    for view in ("devices", "timeline", "jobs", f"jobs/{jobs[0]}", "services", "what-if", "history"):
        watched.show(view)
        until(lambda: watched.page.evaluate("!document.querySelector('.starting')"))
        if view == "timeline":
            until(lambda: watched.page.evaluate("window.carpoolTimeline?.rows.some(row => row.live.length > 3)"))
            watched.page.get_by_role("application").focus()
            watched.page.keyboard.press("]")
            watched.page.locator("[data-role=detail] dt").first.wait_for()
        assert violations(watched) == [], view
        if PICTURES and view in PICTURED:
            picture(watched, view, Path(PICTURES) / f"dashboard-{view}-{scheme}.png")


def test_a_question_and_the_page_without_a_token(rig: BrowserRig) -> None:
    job = rig.daemon.submit("true", hold=True)
    watched = rig.open(f"jobs/{job}")
    watched.page.get_by_role("button", name="Cancel…").click()
    watched.page.get_by_role("dialog").wait_for()
    assert violations(watched) == []
    watched.page.evaluate("sessionStorage.clear()")
    watched.page.add_init_script("sessionStorage.clear()")
    watched.page.reload()
    watched.page.get_by_text("This page needs a link").wait_for()
    assert violations(watched) == []


def test_every_control_is_reached_by_tab(rig: BrowserRig) -> None:
    page = rig.open("jobs").page
    seen: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText ?? '').trim()"
            )
        )
        visible = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        assert page.evaluate(f"document.activeElement === document.body || {visible}"), seen[-1]
    for wanted in ("Skip to the content", "Devices", "Timeline", "History", "Jobs", "ID ↓"):
        assert wanted in seen
