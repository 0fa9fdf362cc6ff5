"""Every control does something, and the daemon knows of it."""

from __future__ import annotations

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import BrowserRig, computing
from tests.dashboard.browser.test_views import quiet, texts


def test_pausing_and_resuming(rig: BrowserRig) -> None:
    job = rig.ready(16, 20)
    page = rig.open(f"jobs/{job}").page
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert rig.daemon.show(job)["paused_by"] is not None
    page.locator(".tone-halted", has_text="paused").wait_for()
    page.get_by_role("button", name="Resume").click()
    until(lambda: rig.daemon.show(job)["paused_by"] is None)
    page.get_by_role("button", name="Pause").wait_for()


def test_holding_and_releasing(rig: BrowserRig) -> None:
    job = rig.daemon.submit("true", after=[rig.paced(*computing(16, 20))])
    page = rig.open(f"jobs/{job}").page
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Release").wait_for()
    assert rig.daemon.show(job)["held_by"] is not None
    page.get_by_role("button", name="Release").click()
    until(lambda: rig.daemon.show(job)["held_by"] is None)


def test_a_weight_and_what_the_daemon_says_to_a_bad_one(rig: BrowserRig) -> None:
    job = rig.paced(*computing(16, 20))
    watched = rig.open(f"jobs/{job}")
    page = watched.page
    weight = page.get_by_label("Priority")
    weight.fill("250")
    page.get_by_role("button", name="Set").click()
    until(lambda: rig.daemon.show(job)["weight"] == 250)
    until(page.get_by_role("button", name="Set").is_disabled)  # the page knows it, too
    weight.fill("9" * 22)
    page.get_by_role("button", name="Set").click()
    page.get_by_role("alert").wait_for()
    assert rig.daemon.show(job)["weight"] == 250
    assert all("400" in complaint for complaint in watched.complaints)


def test_cancelling_asks_first(rig: BrowserRig) -> None:
    job = rig.ready(16, 20)
    watched = rig.open(f"jobs/{job}")
    page = watched.page
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Keep the job").click()
    assert rig.daemon.show(job)["outcome"] is None
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    assert rig.daemon.wait(job)["outcome"] == "cancelled"
    page.locator(".state", has_text="cancelled").wait_for()
    quiet(watched)


def test_finding_filtering_and_sorting(rig: BrowserRig) -> None:
    names = ["alpha", "beta", "gamma"]
    jobs = [rig.daemon.submit("true", name=name, hold=True) for name in names]
    ended = rig.daemon.submit("true", name="delta")
    rig.daemon.wait(ended)
    rig.daemon.until_line(rig.paced(*computing(8, 20), iterations=100_000), "ready")
    watched = rig.open("jobs")
    page = watched.page
    page.locator(f"[data-job='{jobs[0]}']").wait_for()
    page.get_by_label("State").select_option("held")
    until(lambda: texts(watched, "[data-job] .col-name") == names[::-1])
    assert texts(watched, "[role=columnheader]") == ["ID ↓", "Name", "State", "Age", "Why"]  # the rest has no content
    page.get_by_role("button", name="Name").click()
    until(lambda: texts(watched, "[data-job] .col-name") == names)
    assert page.get_by_role("columnheader", name="Name").get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="Name").click()
    until(lambda: texts(watched, "[data-job] .col-name") == names[::-1])
    page.get_by_label("Find").fill("bet")
    until(lambda: texts(watched, "[data-job] .col-name") == ["beta"])
    page.get_by_role("button", name="Show all").click()
    until(lambda: page.locator(f"[data-job='{ended}']").count() == 1)
    owner = str(rig.daemon.show(ended)["owner"])
    page.get_by_label("User").select_option(owner)
    until(lambda: page.locator(f"[data-job='{ended}']").count() == 1)
    for title in ("ID", "State", "Device", "Memory P / L", "Progress", "Left", "Age", "Why"):
        page.get_by_role("columnheader", name=title).get_by_role("button").click()
        assert page.get_by_role("columnheader", name=title).get_attribute("aria-sort") != "none"
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("columnheader", name="ID").get_by_role("button").click()
    quiet(watched)


def test_the_list_by_keys(rig: BrowserRig) -> None:
    job = rig.daemon.submit("true", name="by keys")
    rig.daemon.wait(job)
    page = rig.open("jobs").page
    page.locator(f"[data-job='{job}']").wait_for()
    page.get_by_label("Find").fill("by keys")
    until(lambda: page.locator("[data-job]").count() == 1)
    page.get_by_role("table", name="Jobs").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"{job} by keys").wait_for()


def test_a_log_follows_and_is_searched(rig: BrowserRig) -> None:
    job = rig.daemon.python(
        "for n in range(6000): print(f'step {n}')\nprint('\\x1b[31mred\\x1b[0m plain')\nprint('10 %\\r100 %')"
    )
    rig.daemon.wait(job)
    watched = rig.open(f"jobs/{job}")
    page = watched.page
    page.locator(".log-line .ansi-fg-1", has_text="red").wait_for()
    page.locator(".log-line", has_text="100 %").wait_for()
    assert page.locator(".log-line", has_text="10 %").count() == 0  # overwritten
    assert "5000 lines" in page.locator("main").inner_text() and page.locator(".log-line").count() < 100
    page.get_by_label("Search the log").fill("step 55")
    page.locator("[data-role=hits]", has_text="1 of 100").wait_for()
    page.get_by_role("button", name="Next hit").click()
    page.locator(".log-line.present", has_text="step 5501").wait_for()
    assert not page.get_by_label("Follow", exact=True).is_checked()
    page.get_by_role("button", name="Previous hit").click()
    page.locator("[data-role=hits]", has_text="1 of 100").wait_for()
    page.get_by_label("Follow", exact=True).check()
    page.locator(".log-line", has_text="100 %").wait_for()
    quiet(watched)


def test_the_colours_are_switched_and_kept(rig: BrowserRig) -> None:
    page = rig.open().page
    seen = []
    for name in ("Auto", "Light", "Dark"):
        page.get_by_role("button", name=f"Colours: {name}").click()
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen[0] == seen[2] != seen[1]
    page.get_by_role("button", name="Colours: Auto").wait_for()


def test_what_if_compares_and_applies(rig: BrowserRig) -> None:
    for _ in range(2):
        rig.daemon.wait(rig.paced("attach", "paced:5:10"))
    watched = rig.open("what-if")
    page = watched.page
    page.get_by_label("Policy").select_option("srtf")
    page.get_by_label("Last hours").fill("1")
    page.get_by_role("button", name="Simulate").click()
    page.locator(".figures-table tbody tr").first.wait_for()
    assert page.locator("canvas.still").count() == 2
    page.get_by_role("button", name="Apply srtf").click()
    page.get_by_role("button", name="Leave it").click()
    assert rig.daemon.get("/v1/policy")["name"] != "srtf"
    page.get_by_role("button", name="Apply srtf").click()
    page.get_by_role("button", name="Apply it").click()
    page.get_by_text("The daemon now schedules by srtf.").wait_for()
    assert rig.daemon.get("/v1/policy")["name"] == "srtf"
    rig.daemon.put("/v1/policy", {"name": "fair"})
    quiet(watched)
