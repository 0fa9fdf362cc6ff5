// Services: registered models, where their weights are, and how requests fare.

import * as format from "../format.js";
import { html } from "../html.js";
import { useStore } from "../store.js";

const SIGNS = { ready: "●", preparing: "◔", unavailable: "✕", "not served": "○" };
const TONES = { ready: "tone-turn", unavailable: "tone-bad" };
//: Figures of a model, where its front reports them.
const FIGURES = [
  ["requests_per_s", "requests/s", (value) => value.toFixed(1)],
  ["p50_us", "median", format.time],
  ["p99_us", "99 %", format.time],
  ["missed", "missed", format.count],
  ["waiting", "waiting", format.count],
  ["copied_bytes", "copied", format.size],
];

export function Services() {
  const store = useStore();
  const weights = store.devices.devices.filter((device) => device.weights_bytes > 0);
  const several = new Set(store.models.map((model) => model.owner)).size > 1;
  return html`<div class="head"><h1>Services</h1><span class="muted">${store.models.length === 1 ? "1 model" : `${store.models.length} models`}</span></div>
    ${store.models.length === 0 && html`<p class="empty">No model is registered. <code>carpool model add</code> registers one, <code>carpool serve</code> answers requests for it.</p>`}
    ${store.models.length > 0 && html`<div class="card scrolls" tabindex="0" role="region" aria-label="Models"><table class="models"><thead><tr>
      <th scope="col">model</th>${several && html`<th scope="col">user</th>`}<th scope="col">state</th><th scope="col">weights</th><th scope="col" class="number">deadline</th><th scope="col" class="number">batch</th><th scope="col" class="number">priority</th>
      ${FIGURES.map(([name, title]) => html`<th scope="col" class="number" key=${name}>${title}</th>`)}</tr></thead>
      <tbody>${store.models.map((model) => html`<${Model} key=${`${model.owner} ${model.name}`} model=${model} several=${several} />`)}</tbody></table>
      <p class="notice">Figures are of the last minute, as the front reports them: times from a request's head to its result, deadlines that were missed, requests that wait now, weights copied to devices.</p></div>`}
    ${weights.length > 0 && html`<section class="card" aria-label="Weights on devices"><h2>Weights on devices</h2><table><tbody>
      ${weights.map((device) => html`<tr key=${device.id}><th scope="row">${device.id}</th><td>${format.size(device.weights_bytes)}</td></tr>`)}</tbody></table></section>`}`;
}

function Model({ model, several }) {
  const figures = model.figures ?? {};
  const devices = Object.entries(model.on_devices ?? {});
  return html`<tr data-model=${model.name}><th scope="row">${model.name}<div class="small muted mono">${model.factory}</div></th>
    ${several && html`<td>${model.owner}</td>`}
    <td><span class=${`state ${TONES[model.state] ?? "muted"}`}><i aria-hidden="true">${SIGNS[model.state] ?? "○"}</i>${model.state}</span>${model.reason && html`<div class="small">${model.reason}</div>`}</td>
    <td>${devices.map(([device, bytes]) => html`<div key=${device}>${device}: ${format.size(bytes)}</div>`)}
      <div class="small muted mono">${model.weights ?? "as its factory leaves them"}</div></td>
    <td class="number">${model.deadline_us === null ? "none" : format.time(model.deadline_us)}</td><td class="number">${model.max_batch}</td><td class="number">${model.priority}</td>
    ${FIGURES.map(([name, , show]) => html`<td class="number" key=${name}>${figures[name] === undefined || figures[name] === null ? "–" : show(figures[name])}</td>`)}</tr>`;
}
