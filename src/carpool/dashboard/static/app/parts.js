// Small parts that several views draw.

import { jobColour } from "./colours.js";
import { html } from "./html.js";
import { store } from "./store.js";
import * as words from "./words.js";

export function Chip({ job, kind }) {
  return kind ? html`<i class=${`chip ${kind}`} aria-hidden="true"></i>`
    : html`<i class="chip" aria-hidden="true" style=${{ background: jobColour(job) }}></i>`;
}

/** A link to a job's page: its colour, number and name. */
export function JobLink({ id, named = true }) {
  if (id === null || id === undefined) return html`<span>another user's job</span>`;
  const job = store.jobs.get(id);
  return html`<a href=${`#/jobs/${id}`}><${Chip} job=${id} />${job ? words.id(job) : id}${named && job ? ` ${words.title(job)}` : ""}</a>`;
}

export function State({ job }) {
  return html`<span class=${`state tone-${words.tone(job)}`}><i aria-hidden="true">${words.sign(job)}</i>${words.state(job)}</span>`;
}

/** `share`: 0 to 1. */
export function Bar({ share }) {
  return html`<span class="bar" aria-hidden="true"><i style=${{ width: `${Math.round(share * 100)}%` }}></i></span>`;
}

/** A choice: `options` are texts, or [value, text]; `field` is its label, above it (or beside it, with `beside`). */
export function Choice({ field, value, options, onChange, beside = false, name }) {
  const pairs = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  return html`<label class=${beside ? "small" : "field"}>${field} <select aria-label=${name} onChange=${(event) => onChange(event.target.value)}>
    ${pairs.map(([own, text]) => html`<option key=${own} value=${own} selected=${String(own) === String(value)}>${text}</option>`)}</select></label>`;
}

export function Figure({ label, value, title }) {
  return html`<div class="figure" title=${title}><span>${label}</span><b>${value}</b></div>`;
}

/** `facts`: [[label, value]]; those without a value are left out. */
export function Facts({ facts }) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>`;
}
