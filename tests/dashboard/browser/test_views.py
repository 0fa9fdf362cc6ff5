"""Each view shows what the daemon says; nothing leaves the machine, and the browser complains of nothing."""

from __future__ import annotations

import json
import re
import sys

import msgspec
import pytest

from carpool.protocol import api
from carpool.protocol.models import ModelInfo
from tests.bare_values import bare, bare_jobs
from tests.daemon.daemon_harness import Connection, until
from tests.dashboard.browser.browser_rig import BrowserRig, Watched, computing, scene
from tests.protocol.test_job_names import CASES
from tests.tiers import all_but_first

MODEL = {"factory": "shop.models:resnet", "python": "/usr/bin/python3", "cwd": "/", "env": {}, "deadline_us": 50_000}
FIGURES = {"requests_per_s": 12.34, "p50_us": 4200, "p99_us": 81_000, "missed": 3, "copied_bytes": 5 << 20}


def texts(watched: Watched, selector: str) -> list[str]:
    return [re.sub(r"\s+", " ", text).strip() for text in watched.page.locator(selector).all_inner_texts()]


def quiet(watched: Watched) -> None:
    assert watched.complaints == []
    assert watched.strangers() == []


def test_devices_show_memory_turns_and_what_is_measured(rig: BrowserRig) -> None:
    first = rig.ready(32, 20, name="first", device="host0")
    second = rig.ready(16, 20, name="second", device="host0")
    watched = rig.open("devices")
    card = watched.page.locator("[data-device=host0]")
    card.get_by_role("link", name=f"{first} first").first.wait_for()
    assert card.locator(".map-key").inner_text().count("persistent") == 2
    device = next(one for one in rig.daemon.get("/v1/devices")["devices"] if one["id"] == "host0")
    assert f"of {device['capacity_bytes'] >> 20} MiB granted" in card.inner_text()
    row = card.locator(f"[data-lane='{device['lanes'][0]['id']}']")
    until(lambda: str(first) in row.inner_text() and str(second) in row.inner_text())
    assert "power: not measured" in card.inner_text() or "W" in card.inner_text()
    watched.page.locator(".uplot canvas").first.wait_for()
    assert "256 MiB" in watched.page.locator("main").inner_text() and watched.page.locator("section.card").count() == 3
    quiet(watched)


def test_jobs_show_every_job_with_its_state_and_its_reason(rig: BrowserRig) -> None:
    first = scene(rig)[0]  # those of earlier tests may be further down than the page draws
    watched = rig.open("jobs")
    watched.page.locator("[data-job]").first.wait_for()
    for job in (one for one in rig.daemon.get("/v1/jobs")["jobs"] if one["id"] >= first):
        row = watched.page.locator(f"[data-job='{job['id']}']")
        assert job["name"] in row.locator(".col-name").inner_text()
        if job["outcome"] == "failed":
            assert "failed (3)" in row.locator(".col-state").inner_text()
        if job["reason"] and job["phase"] == "queued":
            assert job["reason"]["text"] in row.locator(".col-why").inner_text()
        if job["held_by"] is not None and job["phase"] == "queued":
            assert "held" in row.locator(".col-state").inner_text()
    quiet(watched)


def test_a_job_that_begins_and_ends_appears_by_itself(rig: BrowserRig) -> None:
    watched = rig.open("jobs")
    job = rig.paced(*computing(8, 20), name="newcomer")
    row = watched.page.locator(f"[data-job='{job}']")
    row.locator(".col-state", has_text="running").wait_for()
    until(lambda: row.locator(".col-progress").inner_text().isdigit())
    rig.daemon.cancel(job)
    row.locator(".col-state", has_text="cancelled").wait_for()
    quiet(watched)


def test_a_job_without_a_name_is_called_as_in_ls(rig: BrowserRig) -> None:
    page = rig.open("jobs").page
    titles = "const { title } = await import('/static/app/words.js'); return each.map(title);"
    said = page.evaluate(f"async (each) => {{ {titles} }}", [{"name": "", "command": command} for command, _ in CASES])
    assert said == [name or "–" for _, name in CASES]


def test_a_jobs_page_has_facts_placement_and_log(rig: BrowserRig) -> None:
    job = rig.ready(24, 20, name="the one", iterations=100_000)
    watched = rig.open(f"jobs/{job}")
    page = watched.page
    page.locator(".log-line", has_text="ready").wait_for()
    page.get_by_text(f"Placed on {rig.daemon.show(job)['device']}").wait_for()
    assert (
        "paced.py" in page.locator(".facts").inner_text() and "24 MiB persistent" in page.locator(".facts").inner_text()
    )
    until(lambda: "time left" in page.locator(".facts").inner_text())
    page.locator(".uplot canvas").first.wait_for()
    quiet(watched)


def test_services_show_models_and_their_state(rig: BrowserRig) -> None:
    rig.daemon.put("/v1/models/resnet", MODEL)
    watched = rig.open("services")
    row = watched.page.locator("[data-model=resnet]")
    row.wait_for()
    assert "not served" in row.inner_text() and "50 ms" in row.inner_text() and "shop.models:resnet" in row.inner_text()
    front = Connection(rig.daemon.socket)  # what a front reports is known as long as its connection is open
    report_serving(front, {"state": "unavailable", "reason": "no <b>weights</b>"})
    row.get_by_text("no <b>weights</b>").wait_for()
    assert row.locator("td").all_inner_texts()[-6:] == ["–"] * 6
    report_serving(front, {"state": "ready", "figures": FIGURES})
    row.get_by_text("ready").wait_for()
    assert row.locator("td").all_inner_texts()[-6:] == ["12.3", "4.2 ms", "81 ms", "3", "0", "5 MiB"]
    front.close()
    row.get_by_text("not served").wait_for()
    quiet(watched)


def report_serving(front: Connection, state: dict[str, object]) -> None:
    front.request("PUT", "/v1/serving", json.dumps({"models": {"resnet": state}}))
    assert front.getresponse().read() is not None


def test_services_show_and_control_engines(rig: BrowserRig) -> None:
    watched = rig.open("services")
    front = Connection(rig.daemon.socket)
    engine = {"state": "off", "models": ["llama-3", "l"], "reason": "exit code <1>"}
    assert report_engine(front, engine) == {}
    row = watched.page.locator("[data-engine=llama]")
    row.get_by_text("exit code <1>").wait_for()
    assert "llama-3, l" in row.inner_text()
    row.get_by_role("button", name="Start").click()
    until(lambda: report_engine(front, engine) == {"llama": "start"})
    report_engine(
        front, engine | {"state": "ready", "reason": "", "in_flight": 3, "first_token_us": 12_000, "tokens_per_s": 31.5}
    )
    row.get_by_text("ready").wait_for()
    assert row.locator("td").all_inner_texts()[2:5] == ["3", "12 ms", "31.5"]
    row.get_by_role("button", name="Move out").click()
    until(lambda: report_engine(front, engine | {"state": "ready"}) == {"llama": "sleep"})
    front.close()
    row.wait_for(state="detached")
    quiet(watched)


def report_engine(front: Connection, state: dict[str, object]) -> dict[str, str]:
    front.request("PUT", "/v1/engines", json.dumps({"engines": {"llama": state}}))
    wishes: dict[str, str] = json.loads(front.getresponse().read())["engines"]
    return wishes


def test_history_shows_use_per_user_and_day(rig: BrowserRig) -> None:
    job = rig.paced("attach", "paced:20:10")
    rig.daemon.wait(job)
    watched = rig.open("history")
    row = watched.page.locator(".usage tbody tr").first
    row.wait_for()
    used = rig.daemon.get("/v1/usage")["days"]
    assert used[-1]["user"] in row.inner_text() and used[-1]["day"] in row.inner_text()
    for days in ("30 days", "90 days", "7 days"):
        watched.page.get_by_label("of the last").select_option(days)
        row.wait_for()
    quiet(watched)


def test_without_a_token_the_page_says_how_to_get_a_link(rig: BrowserRig) -> None:
    opened = rig.open().page  # the link has been used
    assert "link=" not in opened.url and opened.context.cookies() == []
    context = rig.browser.new_context()
    watched = Watched(context.new_page(), rig.run.url)
    watched.page.goto(f"{rig.run.url}/")
    watched.page.get_by_text("This page needs a link").wait_for()
    assert "carpool dashboard" in watched.page.locator("main").inner_text()
    watched.page.goto(rig.run.said["url"])  # only the part after the # is another one
    watched.page.get_by_role("alert").wait_for()
    assert "link=" not in watched.page.url
    context.close()


@pytest.mark.parametrize("width", all_but_first([390, 1000]))
def test_narrow_windows_do_not_scroll_sideways(rig: BrowserRig, width: int) -> None:
    scene(rig)
    watched = rig.open("devices")
    watched.page.set_viewport_size({"width": width, "height": 800})
    for view in ("devices", "timeline", "jobs", "services", "what-if", "history"):
        watched.show(view)
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


TRAINING = """
import itertools, time, torch
torch.set_num_threads(1)
print("imported", flush=True)
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for iteration in itertools.count():
    optimizer.zero_grad()
    net(torch.randn(64, 512)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
    if iteration == 20:
        print("under way", flush=True)
"""


@pytest.mark.nightly(
    "with PyTorch what another test shows with scripted jobs",
    stays="test_a_jobs_page_has_facts_placement_and_log",
)
def test_a_job_with_pytorch_has_iterations_memory_and_turns(rig: BrowserRig) -> None:
    job = rig.daemon.submit(sys.executable, "-c", TRAINING, name="training", device="host0", iterations=100_000)
    for line in ("imported", "under way"):  # tens of seconds on a busy machine, which the page need not wait for
        rig.daemon.until_line(job, line)
    watched = rig.open(f"jobs/{job}")
    page = watched.page
    facts = page.locator(".facts")
    until(lambda: "time left" in facts.inner_text() and "MiB persistent" in facts.inner_text())
    watched.show("timeline")
    until(
        lambda: page.evaluate(
            "id => window.carpoolTimeline?.rows.some(row => [...row.live, ...row.blocks].some(b => b[2] === id))",
            job,
        )
    )
    quiet(watched)


#: As the feed would bring it.
TAKE = "async message => (await import(new URL('static/app/store.js', document.baseURI))).take(message)"
SHOWN = """() => [document.body.innerText, ...[...document.querySelectorAll('[title],[aria-label]')]
    .flatMap(element => [element.title, element.getAttribute('aria-label') ?? ''])].join('\\n')"""


def test_what_the_daemon_does_not_know_is_left_out_or_a_dash(rig: BrowserRig) -> None:
    jobs = [msgspec.structs.replace(job, id=10**6 + job.id) for job in bare_jobs()]
    picture = {
        "kind": "changes", "jobs": jobs, "models": [bare(ModelInfo, name="m")],
        "devices": api.DeviceList([bare(api.DeviceInfo, id="host0")], bare(api.StoreInfo)),
    }  # fmt: skip
    rig.daemon.submit("true")
    watched = rig.open("jobs")
    watched.page.locator("[data-job]").first.wait_for()
    for view in ("jobs", "devices", "services", "timeline", *(f"jobs/{job.id}" for job in jobs)):
        watched.show(view)
        watched.page.evaluate(TAKE, msgspec.to_builtins(picture))
        watched.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert re.search(r"\b(null|undefined|NaN|None)\b", watched.page.evaluate(SHOWN)) is None, view
    assert watched.page.evaluate("location.hash").endswith(str(jobs[-1].id))


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
