"""A daemon, or a dashboard, that goes and comes back is shown and survived."""

from __future__ import annotations

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import BrowserRig
from tests.dashboard.conftest import Page as Dashboard


def test_a_daemon_that_is_killed_and_started_again(rig: BrowserRig) -> None:
    job = rig.ready(16, 20, name="survivor")
    page = rig.open("jobs").page
    row = page.locator(f"[data-job='{job}']")
    row.locator(".col-state", has_text="running").wait_for()
    until(lambda: row.locator(".col-progress").inner_text() != "–")
    rig.daemon.kill()
    page.get_by_role("alert").get_by_text("The daemon is gone.").wait_for()
    assert row.count() == 1  # what was known last stays
    rig.daemon.started()
    page.get_by_role("alert").wait_for(state="detached")
    row.locator(".col-state", has_text="running").wait_for()
    before = int(row.locator(".col-progress").inner_text().replace(",", ""))
    until(lambda: int(row.locator(".col-progress").inner_text().replace(",", "")) > before)


def test_a_dashboard_that_ends(rig: BrowserRig) -> None:
    run = Dashboard(rig.daemon.home)
    page = rig.open("devices", own=run).page
    page.locator("[data-device]").first.wait_for()
    run.close()
    page.get_by_role("alert").get_by_text("Not connected.").wait_for()
    page.get_by_role("button", name="Try now").click()
    page.get_by_role("alert").get_by_text("Not connected.").wait_for()
    assert page.locator("[data-device]").count() == 2  # what was known last stays


def test_a_token_of_another_process(rig: BrowserRig) -> None:
    page = rig.open("devices").page
    page.add_init_script("sessionStorage.setItem('carpool-token', 'another')")
    page.reload()
    page.get_by_text("This page needs a link").wait_for()
    assert page.evaluate("sessionStorage.getItem('carpool-token')") is None
