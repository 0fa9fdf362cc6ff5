// A device's memory as a map: who was granted which part of it, and what of that is in use.

import { jobColour } from "../colours.js";
import * as format from "../format.js";
import { html } from "../html.js";
import { Chip, JobLink } from "../parts.js";

/** [{kind, job?, bytes, used?, text, label}], in the order of the map; all bytes together are the capacity, or more. */
export function segments(device, jobs) {
  const found = [];
  for (const job of jobs) {
    const granted = Math.max(job.persistent_limit, job.persistent_bytes);
    if (granted && !job.offloaded) found.push({ kind: "job", job: job.id, bytes: granted, used: job.persistent_bytes, label: "persistent" });
    if (job.fixed_bytes) found.push({ kind: "job", job: job.id, bytes: job.fixed_bytes, used: job.fixed_bytes, label: "allocated past Carpool" });
  }
  for (const lane of device.lanes) found.push({ kind: "lane", lane: lane.id, bytes: lane.size_bytes, label: `lane ${lane.id}: shared by its jobs, one at a time` });
  if (device.weights_bytes) found.push({ kind: "weights", bytes: device.weights_bytes, label: "weights of models" });
  const others = Math.max(0, (device.telemetry.foreign_bytes ?? 0) - jobs.reduce((sum, job) => sum + job.fixed_bytes, 0));
  if (others) found.push({ kind: "others", bytes: others, label: "other programs (unmanaged)" });
  const reserve = Math.max(0, (device.reserve_bytes ?? 0) - others);
  if (reserve) found.push({ kind: "reserve", bytes: reserve, label: "kept for other programs" });
  const free = device.capacity_bytes - found.reduce((sum, one) => sum + one.bytes, 0);
  if (free > 0) found.push({ kind: "free", bytes: free, label: "free" });
  return found;
}

function text(one) {
  return one.kind === "job" ? String(one.job) : one.kind === "lane" ? `lane ${one.lane}` : { weights: "weights", others: "others", reserve: "kept" }[one.kind] ?? "free";
}

function Segment({ one, whole }) {
  const style = { width: `${(100 * one.bytes) / whole}%` };
  if (one.kind === "job") {
    // What is granted and not in use is hatched: the colour alone says whose it is.
    const used = `${Math.round((100 * one.used) / one.bytes)}%`;
    const colour = jobColour(one.job);
    style.background = `linear-gradient(90deg, ${colour} ${used}, transparent ${used}), repeating-linear-gradient(135deg, ${colour} 0 3px, #fff 3px 6px)`;
  }
  return html`<div class=${one.kind} style=${style} title=${`${text(one)}: ${one.label}, ${format.size(one.bytes)}`}>${text(one)}</div>`;
}

export function MemoryMap({ device, jobs }) {
  const parts = segments(device, jobs);
  const whole = parts.reduce((sum, one) => sum + one.bytes, 0) || 1;
  const summary = `${format.size(device.granted_bytes)} of ${format.size(device.capacity_bytes)} granted, ${format.size(Math.max(0, device.used_bytes - device.left_bytes))} in use`;
  return html`<div class="head"><h3>Memory</h3><span class="small">${summary}</span></div>
    <div class="map" role="img" aria-label=${`Memory of ${device.id}: ${summary}; the list below has the parts`}>
      ${parts.map((one) => html`<${Segment} key=${`${one.kind} ${one.job ?? one.lane} ${one.label}`} one=${one} whole=${whole} />`)}</div>
    <ul class="map-key">${parts.map((one) => html`<${Entry} key=${`${one.kind} ${one.job ?? one.lane} ${one.label}`} one=${one} />`)}
      ${jobs.filter((job) => job.residue_bytes > 0).map((job) => html`<li key=${`residue ${job.id}`}><${Chip} job=${job.id} />
        <span><${JobLink} id=${job.id} named=${false} /> lane memory, saved until its next turn</span><b>${format.size(job.residue_bytes)}</b></li>`)}
    </ul>`;
}

function Entry({ one }) {
  if (one.kind !== "job") return html`<li><${Chip} kind=${one.kind} /><span>${one.label}</span><b>${format.size(one.bytes)}</b></li>`;
  return html`<li><span><${JobLink} id=${one.job} /> <span class="muted">${one.label}</span></span>
    <b>${format.size(one.used)} of ${format.size(one.bytes)}</b></li>`;
}

export function StoreMap({ hostStore, jobs }) {
  const stored = jobs.reduce((sum, job) => sum + job.stored_bytes, 0);
  const whole = Math.max(hostStore.budget_bytes, stored) || 1;
  const summary = `${format.size(hostStore.used_bytes)} in use, ${format.size(hostStore.kept_bytes)} allocated, budget ${format.size(hostStore.budget_bytes)}${hostStore.default ? " (default)" : ""}`;
  return html`<section class="card" aria-label="Offloaded"><div class="head"><h2>Offloaded</h2>
      <span class="muted">memory of jobs that has been moved from devices to the machine (the host store)</span></div>
    <p class="small">${summary}</p>
    <div class="map" role="img" aria-label=${`Offloaded: ${summary}`}>
      ${jobs.map((job) => html`<${Segment} key=${job.id} whole=${whole} one=${{ kind: "job", job: job.id, bytes: job.stored_bytes, used: job.stored_bytes, label: "offloaded" }} />`)}</div>
    <ul class="map-key">${jobs.map((job) => html`<li key=${job.id}><${JobLink} id=${job.id} /><b>${format.size(job.stored_bytes)}</b></li>`)}</ul>
  </section>`;
}
