// Who has the turn in each lane, and who is next.

import * as format from "../format.js";
import { html } from "../html.js";
import { JobLink } from "../parts.js";
import { store } from "../store.js";

const SHOWN = 8; // of the queue

const SHARING = {
  concurrent: "lanes compute at the same time",
  timeslice: "the driver gives lanes time slices",
  mps: "lanes compute at the same time, under MPS",
};

export function LaneTable({ device }) {
  const queued = device.queue.filter((id) => store.jobs.get(id)?.held_by === null);
  return html`<h3>Turns <span class="small">(${SHARING[device.sharing] ?? device.sharing}; a turn lasts ${format.time(device.quantum_us)} at least)</span></h3>
    <table class="turns"><thead><tr><th scope="col">lane</th><th scope="col" class="number">size</th><th scope="col">has the turn</th><th scope="col">next</th></tr></thead>
    <tbody>${device.lanes.map((lane) => html`<${LaneRow} key=${lane.id} lane=${lane} />`)}
      ${device.lanes.length === 0 && html`<tr><td colspan="4" class="muted">no lane: nothing runs here</td></tr>`}</tbody></table>
    ${queued.length > 0 && html`<p class="notice">queued: ${queued.slice(0, SHOWN).map((id) => html`<${JobLink} id=${id} /> `)}${queued.length > SHOWN && `and ${queued.length - SHOWN} more`}</p>`}`;
}

function LaneRow({ lane }) {
  const next = lane.waiting.filter((id) => id !== lane.holder);
  const idle = lane.jobs.filter((id) => id !== lane.holder && !next.includes(id));
  return html`<tr data-lane=${lane.id}><th scope="row">${lane.id}</th><td class="number">${format.size(lane.size_bytes)}</td>
    <td>${lane.holder === null ? html`<span class="muted">free</span>` : html`▶ <${JobLink} id=${lane.holder} />`}</td>
    <td>${next.map((id, n) => html`${n ? ", " : ""}<${JobLink} id=${id} named=${n === 0} />`)}
      ${next.length === 0 && idle.length > 0 && html`<span class="muted">no job waits; jobs in the lane: ${idle.map((id) => html`<${JobLink} id=${id} named=${false} /> `)}</span>`}</td></tr>`;
}
