// The list of jobs: only the rows in sight exist, however many jobs there are.

import { html, useEffect, useMemo, useState } from "../html.js";
import { Space, useWindow } from "../virtual.js";
import { present } from "./columns.js";

const ROW = { wide: 40, narrow: 64 }; // pixels, as in the style sheet: with a reason of two lines, beside or beneath the rest
const NARROW = matchMedia("(max-width: 1000px)");
const GAP = 6;
const EDGES = 20;

function useNarrow() {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const changed = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", changed);
    return () => NARROW.removeEventListener("change", changed);
  }, []);
  return narrow;
}

/** The grid of all rows, as properties of the style sheet. */
function grid(columns, narrow) {
  const tracks = columns.filter((one) => !narrow || one.name !== "why");
  const ems = tracks.reduce((sum, one) => sum + one.em, 0);
  return {
    "--columns": tracks.map((one) => (one.grow ? `minmax(${one.em}em, ${one.grow}fr)` : `${one.em}em`)).join(" "),
    "--least": `calc(${ems}em + ${GAP * (tracks.length - 1) + EDGES}px)`,
  };
}

export function JobTable({ jobs, own, choice, onSort }) {
  const narrow = useNarrow();
  const height = narrow ? ROW.narrow : ROW.wide;
  const { first, last, ref, onScroll } = useWindow(jobs.length, height);
  const columns = useMemo(() => present(jobs, choice.column), [jobs, choice.column]);
  return html`<div class="job-table" style=${grid(columns, narrow)}><div class="job-scroll" ref=${ref} onScroll=${onScroll} role="table" aria-label="Jobs" aria-rowcount=${jobs.length + 1} aria-colcount=${columns.length} tabindex="0" onKeyDown=${step}>
    <div class="job-head job-row" role="row" aria-rowindex="1">${columns.map((column) => html`<${Title} key=${column.name} column=${column} choice=${choice} onSort=${onSort} />`)}</div>
    <div class="job-body" role="rowgroup">
      <${Space} rows=${first} rowHeight=${height} />
      ${jobs.slice(first, last).map((job, n) => html`<${Row} key=${job.id} job=${job} own=${own} columns=${columns} index=${first + n + 2} />`)}
      <${Space} rows=${jobs.length - last} rowHeight=${height} />
    </div></div></div>`;
}

function Title({ column, choice, onSort }) {
  const present = choice.column === column.name;
  const order = present ? (choice.descending ? "descending" : "ascending") : "none";
  return html`<div role="columnheader" aria-sort=${order} class=${`${column.number ? "number " : ""}col-${column.name}`}>
    <button onClick=${() => onSort(column.name)} title=${`${column.about ?? column.title}: sort`}>${column.title}${present ? (choice.descending ? " ↓" : " ↑") : ""}</button></div>`;
}

function Row({ job, own, columns, index }) {
  return html`<div class=${`job-row${job.outcome === null ? "" : " over"}`} role="row" aria-rowindex=${index} tabindex="-1" data-job=${job.id} onDblClick=${() => open(job)}>
    ${columns.map((column) => {
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
