"""The report: everything in one file, the same bytes every time, nothing hidden, and no name that breaks the page."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from carpool.core.model import GIB, Allocation, Outcome, Settings
from carpool.sim.model.options import Options
from carpool.sim.model.result import JobResult, Recording, Result, Span
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.report import charts, write_report
from carpool.sim.report.curves import MOST_POINTS, between, mean, scale_for, thinned
from carpool.sim.results.csv_files import ReportRow, rows_of
from tests.sim.made_results import SECOND, ended, recorded, result, series

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """Elements of a page that matter here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts = 0
        self.ids: list[str] = []
        self.loaded: list[str] = []  # from elsewhere
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.scripts += tag == "script"
        self.ids += [values["id"] or ""] if "id" in values else []
        self.loaded += [values[name] or "" for name in ("src", "href") if name in values]

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data


def written(path: Path, *results: Result) -> str:
    write_report(results, path)
    return path.read_text(encoding="utf-8")


def lanes(*jobs: JobResult, recording: Recording) -> Result:
    options = Options(devices=2, settings=Settings(policy="fair", allocation=Allocation.LANES))
    return Result(options, list(jobs), 0, 0, 1.0, recording)


@pytest.fixture
def lane_result() -> Result:
    jobs = [ended("a", 0, 0, 5), ended("b", 0, 0, 5)]
    spans = [Span(0, 0, 7, 0, 5 * SECOND), Span(1, 1, 8, 0, 5 * SECOND)]
    memory = [series((0, float(GIB)), (5 * SECOND, 0.0)) for _ in range(2)]
    return lanes(*jobs, recording=Recording(spans, memory, [series((0, 0.5)), series((0, 1.0))]))


# The page


def test_the_page_has_everything_in_it(tmp_path: Path, lane_result: Result) -> None:
    page = Page(written(tmp_path / "r.html", recorded(ended("a", 0, 0, 3)), lane_result))
    assert page.loaded == []
    assert page.ids == ["jct", "policy-0", "policy-1"]
    assert page.scripts == 1 + len(page.ids)  # the library, and one per chart
    for wanted in ("srtf", "fair", "mean JCT (s)", "95th percentile of JCT (s)", "utilization"):
        assert wanted in page.text


def test_the_same_results_are_the_same_bytes_whatever_the_real_time(tmp_path: Path) -> None:
    quick, slow = recorded(ended("a", 0, 0, 3)), recorded(ended("a", 0, 0, 3))
    slow.wall_s = 77.0
    first = written(tmp_path / "1.html", quick)
    assert written(tmp_path / "2.html", slow) == first
    # Another process, with another hash seed and without numpy in it.
    code = (
        "import sys; from pathlib import Path; from carpool.sim.report import write_report\n"
        "from tests.sim.made_results import ended, recorded\n"
        "write_report([recorded(ended('a', 0, 0, 3))], Path(sys.argv[1]))\n"
        "assert 'numpy' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "3.html")], check=True, env=environment)
    assert (tmp_path / "3.html").read_text(encoding="utf-8") == first


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    nasty = recorded(ended("", 0, 0, 3, job=TraceJob(NASTY, 0, SECOND, model=NASTY)), policy=NASTY)
    plain = recorded(ended("a", 0, 0, 3))
    made = written(tmp_path / "nasty.html", nasty)
    assert Page(made).scripts == Page(written(tmp_path / "plain.html", plain)).scripts
    assert Page(made).loaded == []
    assert NASTY not in made


def test_a_trace_of_which_nothing_ran_and_a_result_without_a_recording(tmp_path: Path) -> None:
    refused = ended("r", 0, None, 0, outcome=Outcome.REFUSED)
    nothing = result(refused, recording=Recording(busy=[series()])), result(recording=Recording())
    assert "policy-0" in written(tmp_path / "r.html", *nothing)
    with pytest.raises(ValueError, match=r"Options\.record"):
        write_report([result(ended("a", 0, 0, 1))], tmp_path / "r.html")


def test_nothing_but_a_report_loads_plotly() -> None:
    code = (
        "import sys, carpool.cli.commands.traces.simulate, carpool.sim.driver\n"
        "import carpool.sim.results.summary, carpool.sim.results.csv_files\n"
        "sys.exit('plotly' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.skipif(BROWSER is None, reason="no chromium here that could show the page")
def test_a_browser_draws_every_chart(tmp_path: Path, lane_result: Result) -> None:
    nasty = recorded(ended("", 0, 0, 3, job=TraceJob(NASTY, 0, SECOND, model=NASTY)))
    write_report([nasty, lane_result], tmp_path / "r.html")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [str(BROWSER), *options, "--virtual-time-budget=10000", "--dump-dom", (tmp_path / "r.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
    ).stdout
    after_library = shown[shown.index("<body") :]
    charts = re.split(r'<div id="(?:jct|policy)', after_library)[1:]
    assert [chart.count('<g class="subplot ') for chart in charts] == [1, 2, 3]
    assert "<title>Carpool simulation</title>" in shown


# The curves


@pytest.mark.parametrize("count", [MOST_POINTS + 1, 100_000])
def test_thinning_keeps_peaks_ends_and_order(count: int) -> None:
    chance = random.Random(count)
    long = series(*((n * 1000 + chance.randrange(900), chance.random()) for n in range(count)))
    long.values[count // 2], long.values[count // 3] = 9.0, -9.0
    thin = thinned(long)
    assert len(thin.times) <= MOST_POINTS
    assert list(thin.times) == sorted(thin.times)
    assert {9.0, -9.0} <= set(thin.values)
    points = list(zip(thin.times, thin.values, strict=True))
    assert points[0] == (long.times[0], long.values[0])
    assert points[-1] == (long.times[-1], long.values[-1])
    assert set(points) <= set(zip(long.times, long.values, strict=True))


def test_what_is_short_is_not_thinned() -> None:
    short = series(*((n, float(n)) for n in range(MOST_POINTS)))
    assert thinned(short) is short


def test_the_mean_of_step_functions_and_a_curve_from_the_beginning_to_the_end() -> None:
    average = mean([series((0, 1.0), (10, 0.0), (10, 0.5)), series((5, 1.0), (10, 0.0)), series()])
    assert list(average.times) == [0, 5, 10]
    assert list(average.values) == pytest.approx([1 / 3, 2 / 3, 1 / 6])
    whole = between(series((5, 1.0)), 20)
    assert (list(whole.times), list(whole.values)) == ([0, 5, 20], [0.0, 1.0, 1.0])
    assert list(between(series(), 20).values) == [0.0, 0.0]


def test_the_distribution_of_many_jobs_keeps_the_longest() -> None:
    jobs = [ended("", 0, 0, n) for n in range(1, 10_001)]
    (curve,) = charts.jct_figure([result(*jobs)]).data
    assert len(curve.x) <= MOST_POINTS + 1
    assert curve.x[-1] == pytest.approx(10_000 / 60, abs=1e-5)  # minutes
    assert (curve.y[0], curve.y[-1]) == (0.0, 1.0)


def test_the_unit_follows_the_longest_time() -> None:
    assert [scale_for(time).unit for time in (0, SECOND, 3600 * SECOND, 10**12)] == ["ms", "s", "min", "d"]


# The timeline


def test_the_timeline_says_job_model_begin_and_end() -> None:
    job = ended("", 0, 1, 3, job=TraceJob("j<1>", 0, SECOND, model="resnet"))
    made = recorded(job)
    assert made.recording is not None
    figure, note = charts.policy_figure(made, made.recording, 3 * SECOND)
    bars = figure.data[0]
    assert note == ""
    assert [list(facts) for facts in bars.customdata] == [["j&lt;1&gt; (resnet)", "device 0", "1", "3"]]
    assert (list(bars.base), list(bars.x)) == ([1.0], [2.0])


def test_what_the_timeline_leaves_out_is_counted() -> None:
    count = charts.MOST_SPANS + 1234
    spans = [Span(0, 0, 0, n * SECOND, (n + 1) * SECOND) for n in range(count)]
    random.Random(1).shuffle(spans)
    made = result(ended("a", 0, 0, count))
    figure, note = charts.policy_figure(made, Recording(spans, busy=[series()]), count * SECOND)
    assert len(figure.data[0].x) == charts.MOST_SPANS
    assert "5,000 of 6,234 spans" in note
    assert "1,234 are not shown" in note
    assert "up to 4999 s" in note


def test_devices_beyond_the_limit_are_counted() -> None:
    devices = charts.MOST_DEVICES + 6
    spans = [Span(0, device, 0, 0, SECOND) for device in range(devices)]
    recording = Recording(spans, busy=[series()] * devices)
    _, note = charts.policy_figure(result(ended("a", 0, 0, 1), devices=devices), recording, SECOND)
    assert f"{charts.MOST_DEVICES} of {devices} spans" in note
    assert "6 are not shown" in note
    assert f"Curves of the first {charts.MOST_CURVES} of {devices} devices" in note


def test_lanes_take_the_rows_of_those_that_are_over() -> None:
    spans = [Span(0, 0, 1, 0, 10), Span(1, 0, 2, 2, 4), Span(1, 0, 2, 5, 6), Span(2, 0, 3, 6, 9), Span(3, 1, 4, 7, 8)]
    made = lanes(recording=Recording(spans))
    own, rows = rows_of(made, spans, 2)
    assert own == [ReportRow(0, 1), ReportRow(0, 2), ReportRow(0, 2), ReportRow(0, 2), ReportRow(1, 1)]
    assert rows == [ReportRow(0, 1), ReportRow(0, 2), ReportRow(1, 1)]


def test_charts_are_valid_json_with_unusual_names(tmp_path: Path) -> None:
    names = "\u2028\ud800\x00'\"\\ `${x}` %{y}"
    made = written(tmp_path / "r.html", recorded(ended("", 0, 0, 3, job=TraceJob(names, 0, SECOND))))
    match = re.search(r'Plotly\.newPlot\(\s*"policy-0",\s*(\[.*?\]),\s*\{"template"', made)
    assert match is not None
    assert json.loads(match[1])[0]["customdata"][0][0] == names
