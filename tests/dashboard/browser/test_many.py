"""Many jobs in the list: how soon they are there, how much of them the page draws, how many of them a tab keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import BrowserRig, first_paint_and_rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

JOBS = 10_000
ROOM = 5_000  # as in store.js
#: A stand-in for the server's WebSocket, in the page: one real job's row many times, as text, as the server sends it.
STAND_IN = """
const begun = performance.now();
const { job, jobs, rest } = %s;
const rows = Array.from({ length: jobs }, (_, n) => ({ ...job, id: n + 1, name: `sweep lr=${n + 1}`, iterations: n }));
globalThis.hear = (message) => globalThis.socket.onmessage({ data: JSON.stringify(message) });
const text = JSON.stringify({ kind: "state", connected: true, jobs: rows, more: false, ...rest });
globalThis.stateBytes = text.length;
globalThis.madeIn = performance.now() - begun;
globalThis.WebSocket = class {
  constructor() { globalThis.socket = this; setTimeout(() => this.onopen(), 0); }
  send() { setTimeout(() => this.onmessage({ data: text }), 0); }
};
"""


def page_of(rig: BrowserRig, job: Mapping[str, object], jobs: int) -> Page:
    """The list, which is loaded by the caller, of as many jobs like this one."""
    page = rig.open("devices").page
    known = {name: rig.daemon.get(f"/v1/{name}") for name in ("version", "devices", "policy")}
    rest = known | {"models": [], "user": {"uid": 0, "name": "root"}}
    page.add_init_script(STAND_IN % json.dumps({"job": job, "jobs": jobs, "rest": rest}))
    page.evaluate("location.hash = '#/jobs'")
    return page


def test_ten_thousand_jobs(rig: BrowserRig, record_property: Callable[[str, object], None]) -> None:
    page = page_of(rig, rig.daemon.show(rig.daemon.submit("true", name="one of many", hold=True)), JOBS)
    paint, rows = first_paint_and_rows(page)
    made_in, size = page.evaluate("[madeIn, stateBytes]")
    record_property("state_bytes", size)
    record_property("first_paint_ms", round(paint - made_in))
    record_property("first_rows_ms", round(rows - made_in))
    assert page.locator("[data-job]").count() < 80
    page.get_by_label("Find").fill("lr=9999")
    page.get_by_text(f"1 of {JOBS} shown").wait_for()
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("table", name="Jobs").evaluate("table => { table.scrollTop = table.scrollHeight }")
    page.locator("[data-job='1']").wait_for()
    assert page.locator("[data-job]").count() < 80


def test_a_tab_that_stays_open_keeps_the_newest_of_the_jobs_that_have_ended(rig: BrowserRig) -> None:
    job = rig.daemon.wait(rig.daemon.submit("true"))
    page = page_of(rig, job, ROOM)
    first_paint_and_rows(page)
    shown = page.get_by_role("status")
    shown.get_by_text(f"{ROOM} of {ROOM} shown").wait_for()
    later = {**job, "id": ROOM + 1}
    page.evaluate("message => hear(message)", {"kind": "changes", "jobs": [{**later, "phase": "running"}]})
    shown.get_by_text(f"{ROOM + 1} of {ROOM + 1} shown").wait_for()  # of jobs that live none is forgotten
    page.evaluate("message => hear(message)", {"kind": "changes", "jobs": [later]})
    half = ROOM // 2
    shown.get_by_text(f"{half} of {half} shown; there are older ones").wait_for()
    page.locator(f"[data-job='{ROOM + 1}']").wait_for()
    with page.expect_request(lambda request: f"before={ROOM + 2 - half}" in request.url):
        page.get_by_role("button", name="Load older jobs").click()


def test_a_job_that_was_cleaned_up_leaves_the_list(rig: BrowserRig) -> None:
    job = rig.daemon.submit("true")
    rig.daemon.wait(job)
    newest = rig.daemon.submit("true", hold=True)  # which is kept in any case
    watched = rig.open("jobs")
    watched.page.locator(f"[data-job='{job}']").wait_for()
    until(lambda: rig.daemon.post("/v1/clean", {"jobs": [job]})["removed"])
    watched.show(f"jobs/{job}")
    watched.page.get_by_text("has been removed").wait_for()
    watched.show("jobs")
    watched.page.locator(f"[data-job='{newest}']").wait_for()
    assert watched.page.locator(f"[data-job='{job}']").count() == 0
    assert all("404" in complaint for complaint in watched.complaints)
