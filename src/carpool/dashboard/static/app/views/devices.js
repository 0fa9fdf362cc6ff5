// Devices: their memory, what they do, and who has the turns.

import { html } from "../html.js";
import { LaneTable } from "../devices/lanes.js";
import { MemoryMap, StoreMap } from "../devices/memory_map.js";
import { Measured } from "../devices/measured.js";
import { TelemetryChart } from "../devices/telemetry_chart.js";
import { useStore } from "../store.js";

export function Devices() {
  const store = useStore();
  const { devices, store: hostStore } = store.devices;
  return html`<div class="head"><h1>Devices</h1>
      <span class="muted">${devices.length === 1 ? "1 device" : `${devices.length} devices`}</span></div>
    ${devices.map((device) => html`<${Device} key=${device.id} device=${device} jobs=${jobsOf(store, device)} />`)}
    ${devices.length === 0 && html`<p class="empty">The daemon has no device.</p>`}
    ${hostStore && html`<${StoreMap} hostStore=${hostStore} jobs=${[...store.jobs.values()].filter((job) => job.stored_bytes > 0 && job.outcome === null)} />`}`;
}

function jobsOf(store, device) {
  return device.jobs.map((id) => store.jobs.get(id)).filter(Boolean);
}

function Device({ device, jobs }) {
  return html`<section class="card" aria-label=${`Device ${device.id}`} data-device=${device.id}>
    <div class="head"><h2>${device.id}</h2><span class="muted">${device.kind}${device.uuid ? `, ${device.uuid}` : ""}</span>
      ${device.drained && html`<span class="bad">${device.drained}</span>`}
      ${device.alone !== null && html`<span>used exclusively by job ${device.alone}</span>`}</div>
    <div class="device-grid">
      <div><${MemoryMap} device=${device} jobs=${jobs} /></div>
      <div><${LaneTable} device=${device} /></div>
      <div><${TelemetryChart} device=${device.id} /></div>
      <div><h3>Measured</h3><${Measured} telemetry=${device.telemetry} /></div>
    </div>
  </section>`;
}
