"""A real daemon, a real `carpool dashboard`, and a real browser, for tests and for whoever looks at the page."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.daemon.daemon_harness import Daemon, until
from tests.dashboard.conftest import Page as Dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PACED = Path(__file__).with_name("paced.py")
CHROMIUM = Path(os.environ.get("CARPOOL_CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
PATIENCE_MS = 60_000
#: Size of the screen, in pixels.
WIDE = {"width": 1400, "height": 900}
#: Notes when the first rows of jobs have been drawn.
FIRST_ROWS = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("[data-job]")) return;
  observer.disconnect();
  requestAnimationFrame(() => { globalThis.firstRows = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""


@dataclass
class Watched:
    """A page with what it asked for and complained about."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # What the server refuses is a line of the console, too: tests say which refusals they expect.
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def show(self, view: str) -> None:
        self.page.evaluate("view => { location.hash = '#/' + view }", view)
        self.page.wait_for_selector("h1")

    def strangers(self) -> list[str]:
        """Requests that left the dashboard's own address."""
        own = (self.address, self.address.replace("http", "ws", 1), "data:")
        return [url for url in self.requests if not url.startswith(own)]


@contextmanager
def browser_run() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def rig_of(daemon: Daemon) -> Iterator[BrowserRig]:
    """A dashboard and a browser for a daemon that has started; all three end with the block."""
    run = Dashboard(daemon.home, patience_ms=PATIENCE_MS)
    try:
        with browser_run() as browser:
            yield BrowserRig(daemon, run, browser)
    finally:
        run.close()
        daemon.stop()


def first_paint_and_rows(page: Page) -> tuple[float, float]:
    """Milliseconds from a reload to the first paint, and to the first rows of jobs; ``page`` shows the list of jobs."""
    page.add_init_script(FIRST_ROWS)
    page.reload()
    painted = "performance.getEntriesByName('first-contentful-paint').length > 0"
    until(lambda: page.evaluate(f"globalThis.firstRows !== undefined && {painted}"))
    paint, rows = page.evaluate("[performance.getEntriesByName('first-contentful-paint')[0].startTime, firstRows]")
    return paint, rows


class BrowserRig:
    """``daemon``, ``run`` and ``browser`` live as long as the module; each test has pages of its own.

    All pages are tabs of one window, and one process draws them, which takes a second to start: it stays for the first.
    """

    def __init__(self, daemon: Daemon, run: Dashboard, browser: Browser) -> None:
        self.daemon, self.run, self.browser = daemon, run, browser
        self._token: str | None = None
        self._pages: list[Watched] = []
        self._window = browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
        self._first_tab = self._window.new_page()
        self._first_tab.goto(f"{run.url}/static/none")

    def open(self, view: str = "devices", *, scheme: str = "light", own: Dashboard | None = None) -> Watched:
        """A page of a tab of its own; the run's link is followed once, later tabs get its token."""
        run = self.run if own is None else own
        watched = Watched(self._window.new_page(), run.url)
        watched.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        self._pages.append(watched)
        if self._token is None or own is not None:
            watched.page.goto(run.said["url"])
            watched.page.wait_for_selector("h1")
            watched.show(view)
        else:
            watched.page.add_init_script(f"sessionStorage.setItem('carpool-token', {json.dumps(self._token)})")
            watched.page.goto(f"{run.url}/#/{view}")
            watched.page.wait_for_selector("h1")
        if own is None:
            self._token = watched.page.evaluate("sessionStorage.getItem('carpool-token')")
        return watched

    def close_pages(self) -> None:
        """The next test finds nothing that they have stored."""
        for watched in self._pages:
            watched.page.close()
        self._pages.clear()
        self._first_tab.evaluate("localStorage.clear()")

    def paced(self, *steps: str, **fields: Any) -> int:
        return self.daemon.submit(sys.executable, "-u", str(PACED), *steps, **fields)

    def ready(self, persistent_mib: int, ms: int, **fields: Any) -> int:
        """A job that computes, and does so by now."""
        job = self.paced(*computing(persistent_mib, ms), **fields)
        self.daemon.until_line(job, "ready")
        return job


def lacking() -> str:
    """Why there can be no browser here; empty: there can."""
    if not CHROMIUM.exists():
        return f"there is no {CHROMIUM}: apt-get install chromium"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "there is no playwright: make setup"
    return ""


MIB = 1 << 20


def computing(persistent_mib: int, ms: int, *more: str) -> tuple[str, ...]:
    """Steps of a job that keeps so much memory, and computes at a pace until it is cancelled."""
    size = persistent_mib * MIB
    memory = (f"grow:p:{size}", f"touch:p:{size}:7", f"grow:e:{8 * MIB}")
    return ("attach", "help", "turn", *memory, "release", *more, "say:ready", f"paced:1000000:{ms}")


def scene(rig: BrowserRig) -> list[int]:
    """A server at work: jobs that take turns, one that waits, one that is held, and some that have ended."""
    jobs = [
        rig.paced(*computing(56, 30), name="resnet50 lr=0.1", device="host0", iterations=4000),
        rig.paced(*computing(40, 45), name="gpt-small", device="host0", iterations=1500),
        rig.paced(*computing(32, 25), name="vit-tiny seed=3", device="host1"),
    ]
    for job in jobs:
        rig.daemon.until_line(job, "ready")
    rig.daemon.wait(rig.daemon.submit("true", name="preprocess"))
    rig.daemon.wait(rig.daemon.python("print('no such file'); raise SystemExit(3)", name="evaluate"))
    rig.daemon.submit("true", name="after the training", after=[jobs[0]])
    rig.daemon.submit("true", name="ablation", hold=True)
    return jobs
