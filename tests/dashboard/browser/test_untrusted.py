"""What jobs write and are called is text, whatever it looks like."""

from __future__ import annotations

from tests.dashboard.browser.browser_rig import BrowserRig, Watched

NAME = "<img src=x onerror=document.body.dataset.hit=1>"
LINE = "<script>document.body.dataset.hit=2</script><b>bold</b> &amp; \x1b]8;;http://example.org\x07link\x1b]8;;\x07"


def unhurt(watched: Watched) -> None:
    assert watched.page.evaluate("document.body.dataset.hit") is None
    assert watched.page.locator("img, main script, main b:has-text('bold'), a[href*='example']").count() == 0
    assert watched.complaints == [] and watched.strangers() == []


def test_a_job_whose_name_is_markup(rig: BrowserRig) -> None:
    job = rig.daemon.submit("true", name=NAME, hold=True)
    watched = rig.open("jobs")
    watched.page.locator(f"[data-job='{job}']", has_text=NAME).wait_for()
    watched.show(f"jobs/{job}")
    watched.page.get_by_role("heading", name=f"{job} {NAME}").wait_for()
    unhurt(watched)


def test_a_log_that_is_markup(rig: BrowserRig) -> None:
    job = rig.daemon.python(f"print({LINE!r})")
    rig.daemon.wait(job)
    watched = rig.open(f"jobs/{job}")
    line = watched.page.locator(".log-line", has_text="bold")
    line.wait_for()
    assert line.inner_text() == "<script>document.body.dataset.hit=2</script><b>bold</b> &amp; link"
    unhurt(watched)
