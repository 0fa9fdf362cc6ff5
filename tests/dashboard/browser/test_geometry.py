"""The geometry of every view at four widths: no empty block, nothing cut without an ellipsis, every tab in sight.

Screenshots of all of them are kept in ``build/reports/page``; nothing compares their pixels.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon.daemon_harness import Connection, until
from tests.dashboard.browser.browser_rig import BrowserRig, Watched, scene
from tests.dashboard.browser.test_many import page_of
from tests.dashboard.browser.test_views import FIGURES, MODEL, report_serving
from tests.tiers import all_but_first

KEPT = Path("build/reports/page")
#: Sizes of the screen, in pixels; from so wide a window on no table is wider than its room.
SIZES = ((1440, 900), (1280, 800), (760, 900), (390, 844))
WHOLE = 1280
#: A block may end so many pixels below what is in it.
EMPTY = 64
FAULTS = Path(__file__).with_name("geometry.js").read_text()


def show(watched: Watched, view: str) -> None:
    """With everything that comes after the first picture."""
    watched.show(view)
    page = watched.page
    until(lambda: page.evaluate("!document.querySelector('.starting')"))
    match view:
        case "what-if":
            page.get_by_label("Last hours").fill("1")
            page.get_by_role("button", name="Simulate").click()
            page.locator(".figures-table tbody tr").first.wait_for()
        case "jobs":
            page.locator("[data-job]").first.wait_for()
        case "devices" | "history":
            page.locator(".uplot canvas").first.wait_for()
        case "timeline":
            until(lambda: page.evaluate("window.carpoolTimeline?.rows.some(row => row.live.length > 3)"))
        case "services":
            page.locator("[data-model]").first.wait_for()
        case _:
            page.get_by_text("Placed on").wait_for()
            page.locator(".log-line").first.wait_for()


@pytest.mark.parametrize("scheme", all_but_first(["light", "dark"]))
def test_every_view_has_its_place_at_every_width(rig: BrowserRig, scheme: str) -> None:
    jobs = scene(rig)
    rig.daemon.wait(rig.paced("attach", "paced:5:10"))
    rig.daemon.put("/v1/models/resnet?replace=1", MODEL)
    front = Connection(rig.daemon.socket)  # whose figures are known while it is open
    report_serving(front, {"state": "ready", "figures": FIGURES})
    watched = rig.open("devices", scheme=scheme)
    KEPT.mkdir(parents=True, exist_ok=True)
    found = {}
    for view in ("devices", "timeline", "jobs", f"jobs/{jobs[0]}", "services", "what-if", "history"):
        show(watched, view)
        for width, height in SIZES:
            watched.page.set_viewport_size({"width": width, "height": height})
            watched.page.evaluate(
                "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
            )
            found[view, width] = watched.page.evaluate(FAULTS, [EMPTY, WHOLE])
            picture = KEPT / f"{view.partition('/')[0]}{'-one' if '/' in view else ''}-{width}-{scheme}.png"
            watched.page.screenshot(path=str(picture))
    front.close()
    assert {place: faults for place, faults in found.items() if faults} == {}


@pytest.mark.parametrize(("width", "height"), [(1280, 40), (390, 64)])
def test_a_long_reason_has_two_lines_and_an_ellipsis(rig: BrowserRig, width: int, height: int) -> None:
    job = rig.daemon.show(rig.daemon.submit("true", hold=True))
    page = page_of(rig, {**job, "reason": {"code": "memory", "text": "needs memory that other jobs have " * 20}}, 3)
    page.set_viewport_size({"width": width, "height": 844})
    page.reload()
    why = page.locator(".job-body .col-why").first
    why.wait_for()
    assert page.evaluate(FAULTS, [EMPTY, WHOLE]) == []
    assert why.evaluate("cell => cell.scrollHeight > cell.clientHeight") and (why.bounding_box() or {})["height"] < 40
    rows = page.locator("[data-job]").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert rows == [height] * 3, "as far apart as table.js thinks"
    assert (why.get_attribute("title") or "").count("needs memory") == 20
