// History: device time, jobs and waits per user and day, and how busy devices were.

import { get, withQuery } from "../api.js";
import { Chart } from "../chart.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { Choice } from "../parts.js";

const DAYS = { "7 days": 7, "30 days": 30, "90 days": 90 };
const DAY_US = 86_400e6;
const US_PER_HOUR = 3.6e9;
const SHARE = (value) => `${value.toFixed(0)} %`;

export function History() {
  const [days, setDays] = useState("7 days");
  const [past, setPast] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const until = Math.round(format.nowUs());
    get(withQuery("daemon/v1/usage", { since: until - DAYS[days] * DAY_US, until }), stop.signal)
      .then((answer) => (setPast(answer), setProblem("")), (error) => error.name !== "AbortError" && setProblem(error.text));
    return () => stop.abort();
  }, [days]);
  return html`<div class="head"><h1>History</h1>
      <${Choice} beside field="of the last" value=${days} options=${Object.keys(DAYS)} onChange=${setDays} /></div>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    ${past && past.days.length === 0 && past.devices.length === 0 && html`<p class="empty">No data are kept for that time.</p>`}
    ${past && past.days.length > 0 && html`<${Users} rows=${past.days} />`}
    ${past && past.devices.length > 0 && html`<${Busy} rows=${past.devices} />`}`;
}

const noon = (day) => new Date(`${day}T12:00:00`).getTime() / 1000;

/** One series per name, over all days from the first to the last. */
function perDay(rows, name, value, show) {
  const days = everyDay(rows.map((row) => row.day));
  const names = [...new Set(rows.map(name))].sort();
  const series = names.map((one) => {
    const known = new Map(rows.filter((row) => name(row) === one).map((row) => [row.day, value(row)]));
    return { label: one, show, bars: names.length === 1, points: names.length > 1, values: days.map((day) => known.get(day) ?? null) };
  });
  return { times: days.map(noon), series };
}

function everyDay(named) {
  const days = [...new Set(named)].sort();
  const found = [];
  for (let time = noon(days[0]); time < noon(days.at(-1)) + 43_200; time += 86_400) {
    const date = new Date(time * 1000);
    found.push(`${date.getFullYear()}-${String(date.getMonth() + 1).padStart(2, "0")}-${String(date.getDate()).padStart(2, "0")}`);
  }
  return found;
}

function padded(times) {
  return () => [times[0] - 43_200, times.at(-1) + 43_200];
}

function Users({ rows }) {
  const { times, series } = useMemo(() => perDay(rows, (row) => row.user, (row) => row.device_us / US_PER_HOUR, format.hours), [rows]);
  return html`<section class="card" aria-label="Use"><h2>Device-hours per user and day</h2>
    <${Chart} days=${true} times=${times} series=${series} range=${padded(times)} least=${0.01} label="Device-hours per user and day; the table below has the figures" />
    <div class="scrolls" tabindex="0" role="region" aria-label="Use per user and day"><table class="usage"><thead><tr><th scope="col">day</th><th scope="col">user</th><th scope="col" class="number">device time</th><th scope="col" class="number">jobs</th><th scope="col" class="number">waited</th><th scope="col" class="number">waited per job</th></tr></thead>
    <tbody>${newest(rows).map((row) => html`<tr key=${`${row.day} ${row.uid}`}><th scope="row">${row.day}</th><td>${row.user}</td><td class="number">${format.hours(row.device_us / US_PER_HOUR)}</td><td class="number">${row.jobs}</td>
      <td class="number">${format.duration(row.waited_us)}</td><td class="number">${row.jobs ? format.time(row.waited_us / row.jobs) : "–"}</td></tr>`)}</tbody></table></div></section>`;
}

function Busy({ rows }) {
  const { times, series } = useMemo(() => perDay(rows, (row) => row.device, (row) => (row.busy_ppm === null ? null : row.busy_ppm / 1e4), SHARE), [rows]);
  return html`<section class="card" aria-label="Utilisation"><h2>Utilisation per device and day</h2>
    <${Chart} days=${true} times=${times} series=${series} range=${padded(times)} most=${100} label="Utilisation per device and day; the table below has the figures" />
    <table class="busy"><thead><tr><th scope="col">day</th><th scope="col">device</th><th scope="col" class="number">busy</th></tr></thead>
    <tbody>${newest(rows).map((row) => html`<tr key=${`${row.day} ${row.device}`}><th scope="row">${row.day}</th><td>${row.device}</td><td class="number">${row.busy_ppm === null ? "not measured" : format.percent(row.busy_ppm)}</td></tr>`)}</tbody></table></section>`;
}

function newest(rows) {
  return [...rows].sort((a, b) => (a.day < b.day ? 1 : a.day > b.day ? -1 : 0));
}
