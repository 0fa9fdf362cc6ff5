// The columns of the list of jobs: what they show and by what they sort.

import * as format from "../format.js";
import { html } from "../html.js";
import { Bar, Chip, State } from "../parts.js";
import * as words from "../words.js";

const PHASES = ["running", "stopping", "starting", "queued", "ended"];
const nothing = Number.MAX_SAFE_INTEGER;

function Progress({ job }) {
  const share = words.progress(job);
  return html`${share !== null && html`<${Bar} share=${share} /> `}${words.iterations(job)}`;
}

/**
 * [{name, title, em, grow?, sort: job -> value, cell: (job, own user) -> what is shown, says?: job -> whether the cell has content, number?}]
 * `em`: the width, of a column that grows the least one.
 */
export const COLUMNS = [
  { name: "id", title: "ID", em: 4.2, number: true, sort: (job) => job.id, cell: words.id },
  { name: "name", title: "Name", em: 7, grow: 1.4, sort: words.title, cell: (job) => html`<a href=${`#/jobs/${job.id}`} tabindex="-1"><${Chip} job=${job.id} />${words.title(job)}</a>` },
  { name: "state", title: "State", em: 8, sort: (job) => `${PHASES.indexOf(job.phase)} ${words.state(job)}`, cell: (job) => html`<${State} job=${job} />` },
  { name: "user", title: "User", em: 5.5, sort: (job) => job.owner, cell: (job, own) => words.user(job, own) },
  { name: "device", title: "Device", em: 4.5, says: (job) => job.device !== null, sort: (job) => job.device ?? "~", cell: (job) => job.device ?? "–" },
  { name: "memory", title: "Memory P / L", em: 9.4, says: (job) => words.memory(job) !== "–", about: "Memory: persistent, and in the lane", number: true, sort: (job) => -(job.persistent_bytes + job.ephemeral_bytes), cell: words.memory },
  { name: "progress", title: "Progress", em: 10, says: (job) => words.iterations(job) !== "–", sort: (job) => -(words.progress(job) ?? -1), cell: (job) => html`<${Progress} job=${job} />` },
  { name: "left", title: "Left", em: 4.6, says: (job) => words.leftUs(job) !== null, number: true, sort: (job) => words.leftUs(job) ?? nothing, cell: (job) => format.duration(words.leftUs(job)) },
  { name: "age", title: "Age", em: 4.6, number: true, sort: (job) => -words.ageUs(job), cell: (job) => format.duration(words.ageUs(job)) },
  { name: "why", title: "Why", em: 12, grow: 2.6, says: (job) => words.why(job) !== "", sort: words.why, cell: words.why },
];

/** Columns without content give their room to the others; `column`: that by which the jobs are sorted stays. */
export function present(jobs, column) {
  const several = jobs.some((job) => job.owner !== jobs[0].owner);
  return COLUMNS.filter((one) => one.name === column || (one.name === "user" ? several : !one.says || jobs.some(one.says)));
}

/** `choice`: {text, phase, user, column, descending}. */
export function chosen(jobs, choice) {
  const text = choice.text.trim().toLowerCase();
  const fits = (job) => (choice.phase === "" || (choice.phase === "active" ? job.outcome === null : words.state(job).split(",")[0].split(" (")[0] === choice.phase))
    && (choice.user === "" || String(job.owner) === choice.user) && (text === "" || haystack(job).includes(text));
  const column = COLUMNS.find((one) => one.name === choice.column);
  const sign = choice.descending ? -1 : 1;
  const keyed = [];
  for (const job of jobs) if (fits(job)) keyed.push([column.sort(job), job]);
  keyed.sort(([a, one], [b, other]) => sign * (a < b ? -1 : a > b ? 1 : 0) || other.id - one.id);
  return keyed.map(([, job]) => job);
}

function haystack(job) {
  return `${job.id} ${job.name} ${job.command.join(" ")} ${words.state(job)} ${job.device ?? ""} ${words.why(job)} ${job.group}`.toLowerCase();
}
