"""10,000 jobs in the list: how soon they are there, and how much of them the page draws."""

from __future__ import annotations

import json
from typing import Any

from browser_rig import BrowserRig
from daemon_harness import until

JOBS = 10_000
#: Milliseconds, with room for a busy machine; the figure itself is printed.
FIRST_ROWS_MS = 8000


def state(rig: BrowserRig) -> str:
    """What the server sends first, with one real job's row many times."""
    job = rig.daemon.show(rig.daemon.submit("true", name="one of many", hold=True))
    rows = [job | {"id": n, "name": f"sweep lr={n}", "iterations": n, "iterations_total": JOBS} for n in range(1, JOBS + 1)]
    rest: dict[str, Any] = {
        name: rig.daemon.get(f"/v1/{name}") for name in ("version", "devices", "policy")
    } | {"models": [], "user": {"uid": 0, "name": "root"}}  # fmt: skip
    return json.dumps({"kind": "state", "connected": True, "jobs": rows, "more": False, **rest})


def test_ten_thousand_jobs(rig: BrowserRig) -> None:
    watched = rig.open("devices")
    page = watched.page
    text = state(rig)
    page.route_web_socket("**/ws", lambda socket: socket.on_message(lambda _: socket.send(text)))
    page.add_init_script(
        """new MutationObserver((_, observer) => { if (document.querySelector('[data-job]')) {
        observer.disconnect(); requestAnimationFrame(() => { globalThis.firstRows = performance.now() }) } })
        .observe(document, { childList: true, subtree: true })"""
    )
    page.evaluate("location.hash = '#/jobs'")
    page.reload()
    until(lambda: page.evaluate("globalThis.firstRows !== undefined"))
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
    rows = page.evaluate("globalThis.firstRows")
    print(json.dumps({"state_bytes": len(text), "first_paint_ms": paint, "first_rows_ms": round(rows)}))
    assert rows < FIRST_ROWS_MS
    assert page.locator("[data-job]").count() < 80
    page.get_by_label("Find").fill("lr=9999")
    page.get_by_text(f"1 of {JOBS} shown").wait_for()
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("table", name="Jobs").evaluate("table => { table.scrollTop = table.scrollHeight }")
    page.locator("[data-job='1']").wait_for()
    assert page.locator("[data-job]").count() < 80
