// What telemetry says of a device now; what is not measured says why.

import * as format from "../format.js";
import { html } from "../html.js";
import { Figure } from "../parts.js";

const watts = (mw, info) => `${Math.round(mw / 1000)}${info.power_limit_mw === null ? "" : ` of ${Math.round(info.power_limit_mw / 1000)}`} W`;
//: Quantity, its name on a GPU and on a host device ("" where the quantity is not expected), and how it is shown.
const QUANTITIES = [
  ["sm_active_ppm", "SM active", "computing", format.percent],
  ["busy_ppm", "busy", "machine busy", format.percent],
  ["sm_occupancy_ppm", "SM occupancy", "cores of its jobs", format.percent],
  ["dram_active_ppm", "DRAM active", "", format.percent],
  ["temperature_c", "temperature", "temperature", (value) => `${value} °C`],
  ["power_mw", "power", "power", watts],
  ["moved_bytes_per_s", "moved by Carpool", "moved by Carpool", (value) => `${format.size(value)}/s`],
  ["clock_mhz", "clock", "", (value, info) => `${value}${info.clock_limit_mhz === null ? "" : ` of ${info.clock_limit_mhz}`} MHz`],
];

export function Measured({ telemetry }) {
  if (telemetry.level === "none") return html`<p class="muted">not measured: ${telemetry.reason || "the daemon does not say why"}</p>`;
  const host = telemetry.level === "host";
  const expected = QUANTITIES.map(([name, gpu, onHost, show]) => ({ name, label: host ? onHost : gpu, show })).filter((one) => one.label);
  const known = expected.filter(({ name }) => telemetry[name] !== null);
  const missing = expected.filter(({ name }) => telemetry[name] === null && telemetry.missing[name]);
  return html`<div class="figures">
      ${known.map(({ name, label, show }) => html`<${Figure} key=${name} label=${label} value=${show(telemetry[name], telemetry)} />`)}</div>
    ${telemetry.throttled?.length > 0 && html`<p class="bad">slowed down by: ${telemetry.throttled.join(", ")}</p>`}
    ${missing.map(({ name, label }) => html`<p class="notice" key=${name}>${label}: not measured (${telemetry.missing[name]})</p>`)}
    <p class="notice">level ${telemetry.level}${telemetry.reason ? `: ${telemetry.reason}` : ""}, measured every ${format.time(telemetry.interval_us)}</p>`;
}
