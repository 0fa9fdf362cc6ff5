// The list of jobs, with what selects and sorts them.

import { get, withQuery } from "../api.js";
import { html, useMemo, useState } from "../html.js";
import { chosen } from "../jobs/columns.js";
import { JobTable } from "../jobs/table.js";
import { addOlder, useStore } from "../store.js";
import { Choice } from "../parts.js";
import { user } from "../words.js";

const PAGE = 500;
const PHASES = ["active", "running", "queued", "held", "paused", "offloaded", "succeeded", "failed", "cancelled"];
//: Kept while the page is open: who comes back from a job finds the list as it was.
let choice = { text: "", phase: "", user: "", column: "id", descending: true };

export function Jobs() {
  const store = useStore();
  const [present, setPresent] = useState(choice);
  const [problem, setProblem] = useState("");
  const change = (changes) => setPresent((choice = { ...choice, ...changes }));
  const jobs = useMemo(() => chosen(store.jobs.values(), present), [store.changed, present]);
  const owners = useMemo(() => [...new Map([...store.jobs.values()].map((job) => [job.owner, user(job, store.user)]))], [store.changed, store.user]);
  const sort = (name) => change({ column: name, descending: present.column === name ? !present.descending : name === "id" });
  const older = async () => {
    try {
      const { jobs: found } = await get(withQuery("daemon/v1/jobs", { phase: "ended", limit: PAGE, before: store.oldest }));
      addOlder(found, found.length === PAGE);
    } catch (error) {
      setProblem(error.text);
    }
  };
  return html`<div class="head"><h1>Jobs</h1><span class="muted" role="status">${jobs.length} of ${store.jobs.size} shown${store.more ? "; there are older ones" : ""}</span></div>
    <div class="row controls fields">
      <label class="field">Find <input type="search" value=${present.text} placeholder="name, command, reason…" onInput=${(event) => change({ text: event.target.value })} /></label>
      <${Choice} field="State" value=${present.phase} options=${[["", "all"], ...PHASES]} onChange=${(phase) => change({ phase })} />
      <${Choice} field="User" value=${present.user} options=${[["", "all"], ...owners]} onChange=${(user) => change({ user })} />
      ${(present.text || present.phase || present.user) && html`<button class="quiet" onClick=${() => change({ text: "", phase: "", user: "" })}>Show all</button>`}
      ${store.more && html`<button onClick=${older}>Load older jobs</button>`}
    </div>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    <${JobTable} jobs=${jobs} own=${store.user} choice=${present} onSort=${sort} />`;
}
