"""Figures as the page writes them: axes without a mark twice, one sign of no change, no value that says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.daemon.daemon_harness import until
from tests.dashboard.browser.browser_rig import BrowserRig

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Notes what is written on each canvas since its last picture began.
MARKS = """
globalThis.marks = new Map();
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...place) {
  marks.set(this.canvas, []);
  clearRect.apply(this, place);
};
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  marks.get(this.canvas)?.push(text);
  fillText.call(this, text, ...place);
};
"""
WRITTEN = "[...marks].filter(([canvas, texts]) => canvas.isConnected && texts.length).map(([, texts]) => texts)"


def of_format(page: Page, call: str, given: object) -> Any:
    """What functions of `format.js` make of each of ``given``."""
    return page.evaluate(
        f"async (given) => {{ const format = await import('/static/app/format.js'); return given.map({call}) }}", given
    )


def test_no_mark_of_an_axis_is_written_twice(rig: BrowserRig) -> None:
    rig.daemon.wait(rig.paced("attach", "paced:5:10"))
    page = rig.open("history").page
    page.add_init_script(MARKS)
    page.reload()
    until(lambda: len(page.evaluate(WRITTEN)) == 2)
    for written in page.evaluate(WRITTEN):
        assert len(written) > 4 and len({*written}) == len(written), written
    for step in (1e-6, 0.001, 0.0025, 0.005, 0.01, 0.25, 0.5, 1, 2.5, 20):
        shown = of_format(page, f"(value) => format.hours(value, {step})", [step * n for n in range(6)])
        assert [round(float(text.removesuffix(" h")) / step, 6) for text in shown] == [*range(6)], shown
    for power in range(60):
        shown = of_format(page, "format.size", [n << power for n in range(9)])
        assert len({*shown}) == len(shown), shown


def test_a_change_has_one_form(rig: BrowserRig) -> None:
    page = rig.open("what-if").page
    pairs = [[100, 100], [100, 100.4], [100, 99.6], [1e-9, 1e-9], [100, 112], [100, 50], [3, 0]]
    shown = of_format(page, "([before, after]) => format.change(before, after)", pairs)
    assert shown == ["0 %", "0 %", "0 %", "0 %", "+12 %", "−50 %", "−100 %"]


def test_a_figure_has_its_range(rig: BrowserRig) -> None:
    page = rig.open("what-if").page
    none = {"low": None, "high": None}
    given = [
        *({"value": 4.2, "unit": "s", "low": 3.9, "high": 61}, {"value": 4.2, "unit": "s", **none}),
        *({"value": 50.02, "unit": "%", "low": 50.01, "high": 50.04}, {"value": 2.5, "unit": "", "low": 1, "high": 3}),
        *({"value": None, "unit": "s", **none}, None),
    ]
    shown = of_format(page, "format.figure", given)
    assert shown == ["4.2 s (3.9 s to 1m01s)", "4.2 s", "50.0 %", "2.5 (1 to 3)", "–", "–"]


def test_a_legend_has_values_while_the_chart_is_pointed_at(rig: BrowserRig) -> None:
    job = rig.ready(16, 20)
    page = rig.open(f"jobs/{job}").page
    legend = page.locator(".u-legend")
    legend.wait_for()
    assert "persistent" in legend.inner_text() and not any(text in legend.inner_text() for text in ("Time", ":", "–"))
    page.locator(".u-over").hover()
    legend.get_by_text("16 MiB").wait_for()
    assert "Time" in legend.inner_text()
    page.get_by_role("heading", name="Facts").hover()
    until(lambda: "16 MiB" not in legend.inner_text())


def test_colours_of_charts_are_colours_to_a_canvas(rig: BrowserRig) -> None:
    """A canvas draws in the colour before where one is the name of a function that only style sheets know."""
    names = ["--accent", "--second", "--good", "--bad", "--ink", "--muted", "--line", "--raised", "--selected"]
    found = rig.open().page.evaluate(
        "async (names) => { const { cssColour } = await import('/static/app/theme.js'); return names.map(cssColour) }",
        names,
    )
    assert all(colour.startswith(("rgb", "#", "color(")) for colour in found), found
