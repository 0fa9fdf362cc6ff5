// The list of jobs: only the rows in sight exist, however many jobs there are.

import { html } from "../html.js";
import { Space, useWindow } from "../virtual.js";
import { COLUMNS } from "./columns.js";

const ROW = 32; // pixels, as in the style sheet

export function JobTable({ jobs, own, choice, onSort }) {
  const { first, last, ref, onScroll } = useWindow(jobs.length, ROW);
  return html`<div class="job-table"><div class="job-scroll" ref=${ref} onScroll=${onScroll} role="table" aria-label="Jobs" aria-rowcount=${jobs.length + 1} aria-colcount=${COLUMNS.length} tabindex="0" onKeyDown=${step}>
    <div class="job-head job-row" role="row" aria-rowindex="1">${COLUMNS.map((column) => html`<${Title} key=${column.name} column=${column} choice=${choice} onSort=${onSort} />`)}</div>
    <div class="job-body" role="rowgroup">
      <${Space} rows=${first} rowHeight=${ROW} />
      ${jobs.slice(first, last).map((job, n) => html`<${Row} key=${job.id} job=${job} own=${own} index=${first + n + 2} />`)}
      <${Space} rows=${jobs.length - last} rowHeight=${ROW} />
    </div></div></div>`;
}

function Title({ column, choice, onSort }) {
  const present = choice.column === column.name;
  const order = present ? (choice.descending ? "descending" : "ascending") : "none";
  return html`<div role="columnheader" aria-sort=${order} class=${column.number ? "number" : ""}>
    <button onClick=${() => onSort(column.name)} title=${`${column.about ?? column.title}: sort`}>${column.title}${present ? (choice.descending ? " ↓" : " ↑") : ""}</button></div>`;
}

function Row({ job, own, index }) {
  return html`<div class=${`job-row${job.outcome === null ? "" : " over"}`} role="row" aria-rowindex=${index} tabindex="-1" data-job=${job.id} onDblClick=${() => open(job)}>
    ${COLUMNS.map((column) => {
      const shown = column.cell(job, own);
      return html`<div role="cell" key=${column.name} class=${`${column.number ? "number" : ""} col-${column.name}`} title=${typeof shown === "string" ? shown : undefined}>${shown}</div>`;
    })}</div>`;
}

function open(job) {
  location.hash = `#/jobs/${job.id}`;
}

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Arrow keys go from row to row; Enter opens the job. */
function step(event) {
  const row = document.activeElement.closest?.(".job-body .job-row");
  if (event.key === "Enter" && row) return open({ id: row.dataset.job });
  if (!STEPS[event.key] || event.target.tagName === "BUTTON") return undefined;
  event.preventDefault();
  const rows = [...event.currentTarget.querySelectorAll(".job-body .job-row")];
  const next = row ? rows[rows.indexOf(row) + STEPS[event.key]] : rows.find((one) => one.offsetTop >= event.currentTarget.scrollTop) ?? rows[0];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
  return undefined;
}
