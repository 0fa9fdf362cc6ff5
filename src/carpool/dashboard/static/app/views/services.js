// Services: registered models and engines, where their memory is, and how requests fare.

import { send, withQuery } from "../api.js";
import * as format from "../format.js";
import { html, useState } from "../html.js";
import { useStore } from "../store.js";

const SIGNS = { ready: "●", preparing: "◔", starting: "◔", ending: "◔", unavailable: "✕", "not served": "○", off: "○" };
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
  return html`<div class="head"><h1>Services</h1><span class="muted">${counted(store.models, "model")}, ${counted(store.engines, "engine")}</span></div>
    ${store.engines.length > 0 && html`<${Engines} engines=${store.engines} />`}
    ${store.models.length === 0 && store.engines.length === 0 && html`<p class="empty">No model is registered, and no engine is served. <code>carpool model add</code> registers a model, <code>carpool engine add</code> an engine; <code>carpool serve</code> answers requests for them.</p>`}
    ${store.models.length > 0 && html`<div class="card scrolls" tabindex="0" role="region" aria-label="Models"><table class="models"><thead><tr>
      <th scope="col">model</th>${several && html`<th scope="col">user</th>`}<th scope="col">state</th><th scope="col">weights</th><th scope="col" class="number">deadline</th><th scope="col" class="number">batch</th><th scope="col" class="number">priority</th>
      ${FIGURES.map(([name, title]) => html`<th scope="col" class="number" key=${name}>${title}</th>`)}</tr></thead>
      <tbody>${store.models.map((model) => html`<${Model} key=${`${model.owner} ${model.name}`} model=${model} several=${several} />`)}</tbody></table>
      <p class="notice">Figures are of the last minute, as the front reports them: times from a request's head to its result, deadlines that were missed, requests that wait now, weights copied to devices.</p></div>`}
    ${weights.length > 0 && html`<section class="card" aria-label="Weights on devices"><h2>Weights on devices</h2><table><tbody>
      ${weights.map((device) => html`<tr key=${device.id}><th scope="row">${device.id}</th><td>${format.size(device.weights_bytes)}</td></tr>`)}</tbody></table></section>`}`;
}

function counted(list, noun) {
  return `${list.length} ${noun}${list.length === 1 ? "" : "s"}`;
}

function State({ state, text, reason }) {
  return html`<span class=${`state ${TONES[state] ?? "muted"}`}><i aria-hidden="true">${SIGNS[state] ?? "○"}</i>${text ?? state}</span>${reason && html`<div class="small">${reason}</div>`}`;
}

function Engines({ engines }) {
  const [problem, setProblem] = useState("");
  const several = new Set(engines.map((engine) => engine.owner)).size > 1;
  const wish = (engine, what) => async () => {
    setProblem("");
    try {
      await send("POST", withQuery(`daemon/v1/engines/${engine.name}/${what}`, { owner: engine.owner }));
    } catch (error) {
      setProblem(error.text);
    }
  };
  return html`<div class="card scrolls" tabindex="0" role="region" aria-label="Engines"><table class="engines"><thead><tr>
      <th scope="col">engine</th>${several && html`<th scope="col">user</th>`}<th scope="col">state</th><th scope="col">memory</th>
      <th scope="col" class="number">requests</th><th scope="col" class="number">first token</th><th scope="col" class="number">tokens/s</th><th scope="col">control</th></tr></thead>
    <tbody>${engines.map((engine) => html`<${Engine} key=${`${engine.owner} ${engine.name}`} engine=${engine} several=${several} wish=${wish} />`)}</tbody></table>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}</div>`;
}

function Engine({ engine, several, wish }) {
  const report = engine.report;
  const off = report.state === "off";
  const text = engine.moved_out && report.state === "ready" ? "moved out" : report.state;
  return html`<tr data-engine=${engine.name}><th scope="row">${engine.name}${report.pinned && html` <span class="small muted">pinned</span>`}<div class="small muted mono">${report.models.join(", ")}</div></th>
    ${several && html`<td>${engine.owner}</td>`}
    <td><${State} state=${report.state} text=${text} reason=${report.reason} /></td>
    <td>${engine.device === null ? "–" : `${engine.device}: ${format.size(engine.memory_bytes)}`}</td>
    <td class="number">${report.in_flight}</td>
    <td class="number">${report.first_token_us === null ? "–" : format.time(report.first_token_us)}</td>
    <td class="number">${report.tokens_per_s.toFixed(1)}</td>
    <td><div class="row fields">${off ? html`<button onClick=${wish(engine, "start")}>Start</button>` : html`<button onClick=${wish(engine, "stop")}>Stop</button>`}
      ${report.state === "ready" && !engine.moved_out && html`<button onClick=${wish(engine, "sleep")}>Move out</button>`}</div></td></tr>`;
}

function Model({ model, several }) {
  const figures = model.figures ?? {};
  const devices = Object.entries(model.on_devices ?? {});
  return html`<tr data-model=${model.name}><th scope="row">${model.name}<div class="small muted mono">${model.factory}</div></th>
    ${several && html`<td>${model.owner}</td>`}
    <td><${State} state=${model.state} reason=${model.reason} /></td>
    <td>${devices.map(([device, bytes]) => html`<div key=${device}>${device}: ${format.size(bytes)}</div>`)}
      <div class="small muted mono">${model.weights ?? "as its factory leaves them"}</div></td>
    <td class="number">${model.deadline_us === null ? "none" : format.time(model.deadline_us)}</td><td class="number">${model.max_batch}</td><td class="number">${model.priority}</td>
    ${FIGURES.map(([name, , show]) => html`<td class="number" key=${name}>${figures[name] === undefined || figures[name] === null ? "–" : show(figures[name])}</td>`)}</tr>`;
}
