// A chart of values over time, drawn by uPlot, in the page's colours.

import { clock } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { cssColour, onTheme } from "./theme.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";

const HEIGHT = 170;
const POWERS = Array.from({ length: 50 }, (_, n) => 2 ** n); // steps of sizes
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800];
const DAYS = [86_400, 7 * 86_400, 30 * 86_400];
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

function moment(mark, step) {
  const text = clock(mark * 1e6);
  return step >= 86_400 ? text.slice(5, 10) : step >= 60 ? text.slice(11, 16) : text.slice(11);
}

function axis(more) {
  const ink = cssColour("--muted");
  const line = { stroke: cssColour("--line"), width: 1 };
  return { stroke: ink, grid: line, ticks: line, font: "11px system-ui, sans-serif", ...more };
}

function oneSeries(series, number) {
  const colour = cssColour(["--accent", "--second", "--good", "--bad"][number % 4]);
  return {
    label: series.label, stroke: colour, width: 1.5, dash: DASHES[number % 4], spanGaps: false,
    fill: series.bars ? colour : undefined,
    paths: series.bars ? uPlot.paths.bars({ size: [0.7, 60] }) : undefined,
    points: { show: series.points ?? false, size: 5 }, value: (_, value) => (value === null || value === undefined ? "–" : series.show(value)),
  };
}

function options(chart, width) {
  const show = chart.series[0].show;
  const pointed = (plot) => plot.root.classList.toggle("pointed", typeof plot.cursor.idx === "number"); // else the legend has no values
  return {
    width, height: chart.height ?? HEIGHT, cursor: { points: { size: 6 }, y: false }, legend: { live: true }, hooks: { setCursor: [pointed] },
    scales: { x: { time: true, range: chart.range }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), chart.most ?? Math.max(high ?? 0, chart.least ?? 1) * 1.05] } },
    series: [{ value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...chart.series.map(oneSeries)],
    axes: [axis({ values: (_, marks, __, ___, step) => marks.map((mark) => moment(mark, step)), space: 74, size: 26, incrs: chart.days ? DAYS : SECONDS }), axis({ size: 74, values: (_, values, __, ___, step) => values.map((value) => show(value, step)), incrs: chart.binary ? POWERS : undefined })],
  };
}

/**
 * `series`: [{label, show: (value, step of the axis) -> text, values, bars?}]; `times`: seconds since the epoch.
 * `label`: text that a screen reader reads; a table or figures beside the chart have the same facts.
 */
export function Chart({ times, series, label, most, least, range, height, days, binary }) {
  const place = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = { times, series, most, least, range, height, days, binary };
  const make = () => {
    plot.current?.destroy();
    const data = [latest.current.times, ...latest.current.series.map((one) => one.values)];
    plot.current = new uPlot(options(latest.current, place.current.clientWidth), data, place.current);
  };
  useEffect(() => {
    make();
    const observer = new ResizeObserver(() => {
      const width = place.current.clientWidth;
      if (width && width !== plot.current.width) plot.current.setSize({ width, height: height ?? HEIGHT });
    });
    observer.observe(place.current);
    const quiet = onTheme(make);
    return () => {
      observer.disconnect();
      quiet();
      plot.current.destroy();
      plot.current = null;
    };
  }, [series.map((one) => one.label).join("\n")]);
  useEffect(() => plot.current?.setData([times, ...series.map((one) => one.values)]), [times, series]);
  return html`<div class="chart" ref=${place} role="img" aria-label=${label}></div>`;
}
