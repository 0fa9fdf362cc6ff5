// What a device did: its history from the daemon, asked for again now and then.

import { get, withQuery } from "../api.js";
import { Chart } from "../chart.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { Choice } from "../parts.js";

// What is finer than minutes is kept for ten of them: a request for a little less gets it.
const SPANS = { "10 minutes": 595, "1 hour": 3600, "1 day": 86400, "7 days": 604800 };
const AGAIN_MS = 10_000;
const SOON_MS = 2000; // while there is nothing to draw
const SHOWN = [
  ["sm_active_ppm", "computing", format.percent],
  ["busy_ppm", "busy", format.percent],
];

export function TelemetryChart({ device }) {
  const [span, setSpan] = useState("10 minutes");
  const [past, setPast] = useState(null);
  const [problem, setProblem] = useState("");
  const empty = (past?.points.length ?? 0) < 2;
  useEffect(() => {
    const stop = new AbortController();
    const load = () => {
      const since_us = format.nowUs() - SPANS[span] * 1e6;
      const path = withQuery(`daemon/v1/devices/${encodeURIComponent(device)}/telemetry`, { since: Math.round(since_us) });
      get(path, stop.signal).then((answer) => (setPast(answer), setProblem("")), (error) => error.name !== "AbortError" && setProblem(error.text));
    };
    load();
    const timer = setInterval(load, empty ? SOON_MS : AGAIN_MS);
    return () => (stop.abort(), clearInterval(timer));
  }, [device, span, empty]);
  const { times, series } = useMemo(() => lines(past), [past]);
  return html`<div class="row"><h3>Load</h3><${Choice} beside field="of the last" value=${span} options=${Object.keys(SPANS)} onChange=${setSpan} /></div>
    ${problem && html`<p class="notice">${problem}</p>`}
    ${times.length > 1 && series.length > 0
      ? html`<${Chart} times=${times} series=${series} most=${1_000_000} label=${`Load of ${device}, the last ${span}`} />`
      : html`<p class="empty">no measurements of that time yet</p>`}`;
}

function lines(past) {
  const points = past?.points ?? [];
  const present = SHOWN.filter(([name]) => points.some((point) => point.quantities[name]));
  return {
    times: points.map((point) => point.start_us / 1e6),
    series: present.map(([name, label, show]) => ({ label, show, values: points.map((point) => point.quantities[name]?.mean ?? null) })),
  };
}
