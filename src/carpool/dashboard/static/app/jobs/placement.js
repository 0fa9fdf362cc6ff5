// Why a job is on its device, or on none: the figures of every device when it was decided.

import { get } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { JobLink } from "../parts.js";

export function Placement({ job }) {
  const [placement, setPlacement] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    get(`daemon/v1/jobs/${job.id}/placement`, stop.signal).then(setPlacement, (error) => error.name !== "AbortError" && setProblem(error.text));
    return () => stop.abort();
  }, [job.id, job.device, job.phase]);
  if (problem) return html`<p class="notice">${problem}</p>`;
  if (placement === null) return html`<p class="muted">…</p>`;
  const taken = placement.rows.filter((row) => row.chosen).map((row) => row.device);
  return html`<p>${taken.length ? `Placed on ${taken.join(", ")}` : "Waits; devices as they are now"} (placement ${placement.policy}${placement.strict ? ", strict" : ""}).</p>
    ${placement.rows.length > 0 && html`<div class="scrolls" tabindex="0" role="region" aria-label="Devices that were considered"><table>
      <thead><tr><th scope="col">device</th><th scope="col">verdict</th><th scope="col" class="number">free</th><th scope="col" class="number">need</th><th scope="col" class="number">margin</th><th scope="col" class="number">risk</th><th scope="col">jobs there</th></tr></thead>
      <tbody>${placement.rows.map((row) => html`<${PlacementLine} key=${row.device} row=${row} />`)}</tbody></table></div>`}`;
}

function PlacementLine({ row }) {
  const verdict = row.chosen ? "✓ chosen" : row.refusal ? `no: ${row.refusal.text || row.refusal.code}` : "possible";
  const tried = row.reluctance?.text ? `; tried last: ${row.reluctance.text}` : "";
  return html`<tr><th scope="row">${row.device}</th><td>${verdict}${tried}</td>
    <td class="number">${format.size(row.free)}</td><td class="number">${format.size(row.need)}</td><td class="number">${format.size(row.margin)}</td>
    <td class="number">${row.load ? (row.load.risk_active_ppm / 1e6).toFixed(2) : "–"}</td>
    <td>${row.jobs.length ? row.jobs.map((id) => html`<${JobLink} id=${id} named=${false} /> `) : "–"}</td></tr>`;
}
