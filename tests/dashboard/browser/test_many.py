"""10,000 jobs in the list: how soon they are there, and how much of them the page draws."""

from __future__ import annotations

import json
from collections.abc import Callable

from browser_rig import BrowserRig, first_paint_and_rows

JOBS = 10_000
#: A stand-in for the server's WebSocket, in the page: one real job's row 10,000 times, as text, as the server sends it.
STAND_IN = """
const begun = performance.now();
const { job, jobs, rest } = %s;
const rows = Array.from({ length: jobs }, (_, n) => ({ ...job, id: n + 1, name: `sweep lr=${n + 1}`, iterations: n }));
const text = JSON.stringify({ kind: "state", connected: true, jobs: rows, more: false, ...rest });
globalThis.stateBytes = text.length;
globalThis.madeIn = performance.now() - begun;
globalThis.WebSocket = class {
  constructor() { setTimeout(() => this.onopen(), 0); }
  send() { setTimeout(() => this.onmessage({ data: text }), 0); }
};
"""


def test_ten_thousand_jobs(rig: BrowserRig, record_property: Callable[[str, object], None]) -> None:
    page = rig.open("devices").page
    job = rig.daemon.show(rig.daemon.submit("true", name="one of many", hold=True))
    known = {name: rig.daemon.get(f"/v1/{name}") for name in ("version", "devices", "policy")}
    rest = known | {"models": [], "user": {"uid": 0, "name": "root"}}
    page.add_init_script(STAND_IN % json.dumps({"job": job, "jobs": JOBS, "rest": rest}))
    page.evaluate("location.hash = '#/jobs'")
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
