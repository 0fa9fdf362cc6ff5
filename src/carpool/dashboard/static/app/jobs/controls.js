// What one can do to a job: the same as on the command line, and the daemon says who may.

import { send } from "../api.js";
import { Question } from "../dialog.js";
import { html, useState } from "../html.js";
import { addJobs } from "../store.js";

async function act(job, what) {
  const answer = await send("POST", `daemon/v1/jobs/${job.id}/${what}`);
  if (answer) addJobs([answer]);
}

export function Controls({ job }) {
  const [question, setQuestion] = useState(null);
  const [problem, setProblem] = useState("");
  if (job.outcome !== null) return null;
  const run = (what) => async () => {
    setProblem("");
    try {
      await act(job, what);
    } catch (error) {
      setProblem(error.text);
    }
  };
  const cancel = () => setQuestion({
    title: `Cancel job ${job.id}?`, text: "The job's processes end. Results that are not written to a file are lost.",
    yes: "Cancel the job", no: "Keep the job", act: () => act(job, "cancel"),
  });
  return html`<div class="row controls fields">
      ${job.paused_by === null ? html`<button onClick=${run("pause")}>Pause</button>` : html`<button onClick=${run("resume")}>Resume</button>`}
      ${job.held_by !== null ? html`<button onClick=${run("release")}>Release</button>` : job.phase === "queued" && html`<button onClick=${run("hold")}>Hold</button>`}
      <${Weight} job=${job} onProblem=${setProblem} />
      <button class="danger" onClick=${cancel} disabled=${job.phase === "stopping"}>Cancel…</button>
    </div>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    <${Question} question=${question} onClose=${() => setQuestion(null)} />`;
}

function Weight({ job, onProblem }) {
  const [typed, setTyped] = useState(null); // until then the job's own, which may change meanwhile
  const shown = typed ?? job.weight;
  const change = async (event) => {
    event.preventDefault();
    onProblem("");
    try {
      addJobs([await send("PATCH", `daemon/v1/jobs/${job.id}`, { weight: Number(shown) })]);
      setTyped(null);
    } catch (error) {
      onProblem(error.text);
    }
  };
  return html`<form class="row fields" onSubmit=${change}>
    <label class="field">Priority (weight, 100 is normal)
      <input type="number" min="1" step="1" required value=${shown} onInput=${(event) => setTyped(event.target.value)} /></label>
    <button disabled=${String(shown) === String(job.weight)}>Set</button></form>`;
}
