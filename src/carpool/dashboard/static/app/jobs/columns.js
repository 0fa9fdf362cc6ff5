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

/** [{name, title, sort: job -> value, cell: (job, own user) -> what is shown, number?}] */
export const COLUMNS = [
  { name: "id", title: "ID", number: true, sort: (job) => job.id, cell: (job) => job.id },
  { name: "name", title: "Name", sort: words.title, cell: (job) => html`<a href=${`#/jobs/${job.id}`} tabindex="-1"><${Chip} job=${job.id} />${words.title(job)}</a>` },
  { name: "state", title: "State", sort: (job) => `${PHASES.indexOf(job.phase)} ${words.state(job)}`, cell: (job) => html`<${State} job=${job} />` },
  { name: "user", title: "User", sort: (job) => job.owner, cell: (job, own) => words.user(job, own) },
  { name: "device", title: "Device", sort: (job) => job.device ?? "~", cell: (job) => job.device ?? "–" },
  { name: "memory", title: "Memory P / E", about: "Memory: persistent, and ephemeral of an iteration", number: true, sort: (job) => -(job.persistent_bytes + job.ephemeral_bytes), cell: words.memory },
  { name: "progress", title: "Progress", sort: (job) => -(words.progress(job) ?? -1), cell: (job) => html`<${Progress} job=${job} />` },
  { name: "left", title: "Left", number: true, sort: (job) => words.leftUs(job) ?? nothing, cell: (job) => format.duration(words.leftUs(job)) },
  { name: "age", title: "Age", number: true, sort: (job) => -words.ageUs(job), cell: (job) => format.duration(words.ageUs(job)) },
  { name: "why", title: "Why", sort: words.why, cell: words.why },
];

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
