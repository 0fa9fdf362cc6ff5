// One job: what it does, what can be done to it, its log, and why it is where it is.

import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { Controls } from "../jobs/controls.js";
import { Attempts, JobFacts } from "../jobs/facts.js";
import { Log } from "../jobs/log.js";
import { JobTurns, MemoryHistory } from "../jobs/memory_history.js";
import { Placement } from "../jobs/placement.js";
import { Bar, Chip, Choice, State } from "../parts.js";
import { addJobs, removeJob, useStore } from "../store.js";
import * as words from "../words.js";

export function JobPage({ id }) {
  const store = useStore();
  const [problem, setProblem] = useState("");
  const job = store.jobs.get(id);
  const gone = (error) => {
    if (error.status === 404) removeJob(id); // it has been cleaned up
    setProblem(error.text);
  };
  useEffect(() => {
    // The list has no attempts of old jobs, and not every job.
    get(`daemon/v1/jobs/${id}`).then((answer) => addJobs([answer]), gone);
  }, [id]);
  if (!job) return html`<div class="head"><h1>Job ${id}</h1></div><p class=${problem ? "bad" : "muted"} role="status">${problem || "…"}</p><a href="#/jobs">All jobs</a>`;
  return html`<div class="head"><a href="#/jobs">Jobs</a><h1><${Chip} job=${id} />${words.id(job)} ${words.title(job)}</h1><${State} job=${job} />
      ${words.progress(job) !== null && html`<span><${Bar} share=${words.progress(job)} /> ${words.iterations(job)}</span>`}</div>
    ${words.why(job) && html`<p class="why">${words.why(job)}</p>`}
    <${Controls} job=${job} />
    <div class="job-grid">
      <section class="card" aria-label="Facts"><h2>Facts</h2><${JobFacts} job=${job} own=${store.user} /></section>
      <div>
        <section class="card" aria-label="Placement"><h2>Why the job is there</h2><${Placement} job=${job} /></section>
        <section class="card" aria-label="Memory over time"><h2>Memory</h2><${MemoryHistory} id=${id} /></section>
        <section class="card" aria-label="Attempts"><h2>Attempts</h2><${Attempts} job=${job} /></section>
      </div>
    </div>
    ${job.device !== null && html`<section class="card" aria-label="Turns"><h2>Turns on ${job.device}</h2><${JobTurns} job=${job} /></section>`}
    <section class="card" aria-label="Output"><h2>Log</h2><${LogChoice} job=${job} /></section>`;
}

function LogChoice({ job }) {
  const [attempt, setAttempt] = useState(null);
  const numbers = job.attempts.map((one) => one.number);
  return html`${numbers.length > 0 && html`<${Choice} beside field="Attempt" value=${attempt ?? ""} options=${[["", "the latest"], ...numbers]} onChange=${(number) => setAttempt(Number(number) || null)} />`}
    <${Log} key=${`${job.id} ${attempt} ${job.attempt}`} job=${job.id} attempt=${attempt} />`;
}
