// Everything that the daemon says of a job, and its attempts.

import * as format from "../format.js";
import { html } from "../html.js";
import { Facts, JobLink } from "../parts.js";
import * as words from "../words.js";

function links(ids) {
  return ids.length ? ids.map((id) => html`<${JobLink} id=${id} named=${false} /> `) : null;
}

function moved({ out_bytes, out_us, in_bytes, in_us }) {
  const rate = (bytes, us) => (us ? ` (${format.size((bytes * 1e6) / us)}/s)` : "");
  return out_bytes || in_bytes ? `${format.size(out_bytes)} out${rate(out_bytes, out_us)}, ${format.size(in_bytes)} back${rate(in_bytes, in_us)}` : null;
}

/** What it uses and may use; of a job that has ended the most that it has used. */
function amount(job, kind, bytes, limit) {
  return `${format.size(bytes)} ${kind}${job.outcome === null && limit ? ` (granted ${format.size(limit)})` : ""}`;
}

export function JobFacts({ job, own }) {
  const left = words.leftUs(job);
  return html`<${Facts} facts=${[
    ["command", html`<code>${job.command.join(" ")}</code>`],
    ["directory", job.cwd && html`<code>${job.cwd}</code>`],
    ["user", `${words.user(job, own)} (uid ${job.owner})`],
    ["device", job.device === null ? null : `${job.devices.length ? job.devices.join(", ") : job.device}${job.lane === null ? "" : `, lane ${job.lane}`}`],
    ["checkpoint", job.checkpoint ? "suspended by the driver between its turns" : null],
    ["process", job.outcome === null ? job.pid : null],
    ["group", job.group],
    ["array", job.array === null ? null : `element ${job.index} of array ${job.array}, by itself job ${job.id}`],
    ["starts after", links([...job.after, ...job.after_any, ...job.after_notok])],
    ["retry of", job.retry_of === null ? null : html`<${JobLink} id=${job.retry_of} />`],
    ["started by", job.launcher],
    ["submitted", format.clock(job.submitted_us)],
    ["started", job.started_us === null ? null : format.clock(job.started_us)],
    ["ended", job.ended_us === null ? null : format.clock(job.ended_us)],
    ["exit code", job.exit_code],
    ["memory", `${amount(job, "persistent", job.persistent_bytes, job.persistent_limit)}, ${amount(job, "in its lane", job.ephemeral_bytes, job.ephemeral_limit)}`],
    ["outside", job.scratch_bytes ? `${format.size(job.scratch_bytes)} of private memory (reported, not limited)` : null],
    ["saved lane memory", job.residue_bytes ? format.size(job.residue_bytes) : null],
    ["offloaded", job.stored_bytes && job.outcome === null ? `${format.size(job.stored_bytes)}${job.offloaded ? "" : ", restored when used"}` : null],
    ["moved", moved(job.moved)],
    ["iterations", `${words.iterations(job)}${job.iteration_us ? `, ${format.time(job.iteration_us)} each` : ""}`],
    ["time left", left === null ? null : `${format.duration(left)} of turn time, at its pace so far`],
    ["turn time", `${format.time(job.device_us)}, ${format.count(job.switches)} switches`],
    ["device busy", job.busy_us === null ? null : `${format.time(job.busy_us)} of ${format.time(job.busy_of_us)}`],
    ["time limit", job.time_us === null ? null : format.duration(job.time_us)],
    ["output", job.output],
    ["notifies", job.notify.join(", ")],
  ]} />`;
}

export function Attempts({ job }) {
  if (!job.attempts.length) return html`<p class="muted">There are no earlier attempts.</p>`;
  return html`<div class="scrolls" tabindex="0" role="region" aria-label="Attempts"><table><thead><tr><th scope="col">attempt</th><th scope="col">device</th><th scope="col">started</th><th scope="col">took</th><th scope="col">how it ended</th><th scope="col" class="number">most memory</th></tr></thead>
    <tbody>${job.attempts.map((one) => html`<tr key=${one.number}><th scope="row">${one.number}</th><td>${one.device ?? "–"}</td><td>${format.clock(one.started_us)}</td>
      <td>${one.started_us === null || one.ended_us === null ? "–" : format.duration(one.ended_us - one.started_us)}</td><td>${one.text}</td>
      <td class="number">${format.size(one.persistent_bytes)} / ${format.size(one.ephemeral_bytes)}</td></tr>`)}</tbody></table></div>`;
}
