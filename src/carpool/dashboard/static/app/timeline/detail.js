// What a block of the timeline is: job, cause, duration and cost.

import * as format from "../format.js";
import { html } from "../html.js";
import { Facts, JobLink } from "../parts.js";
import { store } from "../store.js";
import { CAUSES } from "../words.js";

const WHAT = { lane: "turn", moves: "move", requests: "request", pauses: "pause" };

export function BlockDetail({ found }) {
  if (!found) return html`<p class="muted">Select a block: click on it, or use the keys below.</p>`;
  const { row, block } = found;
  const [begin, end, job, count, cause, busy, text] = block;
  const several = count > 1;
  const until = end ?? format.nowUs();
  const what = WHAT[row.kind];
  return html`<h2>${several ? `${count} ${what}s` : `A ${what}`} ${row.kind === "lane" ? `in lane ${row.lane} of ${row.device}` : `on ${row.device}`}</h2>
    <${Facts} facts=${[
      [several ? "job with most of it" : "job", html`<${JobLink} id=${job} />`],
      ["begin", `${format.clock(begin).slice(0, 10)} ${format.preciseTime(begin, 1)}`],
      ["end", end === null ? "goes on" : format.preciseTime(end, 1)],
      ["duration", format.time(until - begin)],
      ["in turns", several && busy !== null ? `${format.time(busy)} of it; ${format.time(busy / count)} each on average` : null],
      row.kind === "lane" ? [several ? "the last" : "how it ended", cause === "" ? null : CAUSES[cause] ?? cause] : ["what", cause],
      ["", text],
      ["cost", cost(row, job, several ? null : end)],
    ]} />`;
}

/** What followed the turn's end: moves of that job's memory on the device that began with it. */
function cost(row, job, end) {
  const info = store.jobs.get(job);
  if (row.kind !== "lane" || !info) return null;
  const saved = info.residue_bytes ? `${format.size(info.residue_bytes)} of its lane saved and restored at its last switch` : "nothing saved at its last switch";
  return end === null ? null : `${saved}; ${format.count(info.switches)} switches so far`;
}
