// What if: the last hours of this daemon once more, simulated with another policy, both side by side.

import { send } from "../api.js";
import { Question } from "../dialog.js";
import * as format from "../format.js";
import { html, useState } from "../html.js";
import { Choice } from "../parts.js";
import { Runs } from "../timeline/runs.js";
import { update, useStore } from "../store.js";

export function WhatIf() {
  const store = useStore();
  const [typed, setTyped] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const [question, setQuestion] = useState(null);
  const [done, setDone] = useState("");
  const form = typed ?? { policy: store.policy.available.find((name) => name !== store.policy.name) ?? store.policy.name, placement: "", hours: 24 };
  const change = (changes) => setTyped({ ...form, ...changes });
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    setDone("");
    try {
      const body = { policy: form.policy, placement: form.placement || null, settings: {}, hours: Number(form.hours) };
      setAnswer({ ...(await send("POST", "what-if", body)), asked: form });
    } catch (error) {
      setProblem(error.text);
    }
    setBusy(false);
  };
  const applied = answer?.asked;
  const apply = () => setQuestion({
    title: `Apply the policy ${applied.policy}?`,
    text: `The daemon will schedule by ${applied.policy}${applied.placement ? ` and place by ${applied.placement}` : ""}, for the jobs of all users. The present policies are ${store.policy.name} and ${store.policy.placement}.`,
    yes: "Apply it", no: "Leave it",
    act: async () => {
      const policy = await send("PUT", "daemon/v1/policy", { name: applied.policy, ...(applied.placement ? { placement: applied.placement } : {}) });
      update({ policy });
      setDone(`The daemon now schedules by ${policy.name}.`);
    },
  });
  return html`<div class="head"><h1>What if</h1><span class="muted">the jobs of the last hours, simulated with another policy</span></div>
    <form class="card row fields" onSubmit=${run}>
      <${Choice} field="Policy" value=${form.policy} options=${store.policy.available} onChange=${(policy) => change({ policy })} />
      <${Choice} field="Placement" value=${form.placement} options=${[["", `as now (${store.policy.placement})`], ...(store.policy.placements ?? [])]} onChange=${(placement) => change({ placement })} />
      <label class="field">Last hours <input type="number" min="1" max="168" step="any" required value=${form.hours} onInput=${(event) => change({ hours: event.target.value })} /></label>
      <button class="strong" disabled=${busy}>${busy ? "Simulating…" : "Simulate"}</button>
      <span class="small muted">now: ${store.policy.name}, ${store.policy.placement}</span>
    </form>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    ${done && html`<p role="status">${done}</p>`}
    ${answer && html`<${Comparison} answer=${answer} />
      <div class="row"><button onClick=${apply}>Apply ${applied.policy}${applied.placement ? ` and ${applied.placement}` : ""}…</button>
        <span class="small muted">only administrators of the daemon may apply a policy</span></div>`}
    <${Question} question=${question} onClose=${() => setQuestion(null)} />`;
}

function Comparison({ answer }) {
  const runs = [["as now", answer.now], ["what if", answer.then]];
  const ends = runs.flatMap(([, run]) => run.lanes.flatMap((lane) => lane.runs));
  const range = ends.length ? [Math.min(...ends.map((one) => one[0])), Math.max(...ends.map((one) => one[1]))] : null;
  const names = [...new Set(runs.flatMap(([, run]) => Object.keys(run.figures)))];
  return html`<section class="card" aria-label="Figures"><h2>Figures</h2><table class="figures-table"><thead><tr><th scope="col"></th>
      ${runs.map(([title, run]) => html`<th scope="col" class="number" key=${title}>${run.policy} (${title})</th>`)}<th scope="col" class="number">change</th></tr></thead>
      <tbody>${names.map((name) => html`<${FigureRow} key=${name} now=${answer.now.figures[name]} then=${answer.then.figures[name]} name=${name} />`)}</tbody></table>
      ${answer.notes.map((note) => html`<p class="notice" key=${note}>${note}</p>`)}</section>
    <div class="both">${runs.map(([title, run]) => html`<section class="card" key=${title} aria-label=${`${run.policy}, ${title}`}><h2>${run.policy} <span class="small muted">${title}</span></h2>
      ${range ? html`<${Runs} lanes=${run.lanes} range=${range} label=${`Runs of jobs under ${run.policy}`} />` : html`<p class="empty">no job ran in that time</p>`}</section>`)}</div>`;
}

function FigureRow({ name, now, then }) {
  const known = now?.value && then && then.value !== null;
  return html`<tr><th scope="row">${(now ?? then).text || name}</th><td class="number">${format.figure(now)}</td><td class="number">${format.figure(then)}</td>
    <td class="number">${known ? format.change(now.value, then.value) : "–"}</td></tr>`;
}
