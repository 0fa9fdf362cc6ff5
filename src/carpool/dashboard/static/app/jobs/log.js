// A job's log: follows, is searched, and shows the colours that programs write for terminals.

import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../html.js";
import { Space, useWindow } from "../virtual.js";
import { LogReader } from "./log_reader.js";

const ROW = 18; // pixels, as in the style sheet

export function Log({ job, attempt }) {
  const [version, redraw] = useReducer((count) => count + 1, 0);
  const reader = useRef(null);
  const [follow, setFollow] = useState(true);
  const [wanted, setWanted] = useState("");
  const [present, setPresent] = useState(0);
  useEffect(() => {
    reader.current = new LogReader(job, attempt, redraw);
    return () => reader.current.close();
  }, [job, attempt]);
  const lines = useMemo(() => reader.current?.shown() ?? [], [version]);
  const hits = useMemo(() => found(lines, wanted), [lines, wanted]);
  const list = useWindow(lines.length, ROW);
  useLayoutEffect(() => {
    if (follow) list.ref.current.scrollTop = list.ref.current.scrollHeight;
  }, [lines.length, follow]);
  const go = (step) => {
    if (!hits.length) return;
    const next = (present + step + hits.length) % hits.length;
    setPresent(next);
    setFollow(false);
    list.ref.current.scrollTop = Math.max(0, hits[next] * ROW - list.ref.current.clientHeight / 2);
  };
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = list.ref.current;
    if (follow && scrollHeight - scrollTop - clientHeight > 2 * ROW) setFollow(false);
    list.onScroll();
  };
  const marked = new Set(hits);
  return html`<div class="row controls">
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> Follow</label>
      <input type="search" aria-label="Search the log" placeholder="search" value=${wanted} onInput=${(event) => (setWanted(event.target.value), setPresent(0))} onKeyDown=${(event) => event.key === "Enter" && go(event.shiftKey ? -1 : 1)} />
      <button onClick=${() => go(-1)} disabled=${!hits.length} aria-label="Previous hit">↑</button>
      <button onClick=${() => go(1)} disabled=${!hits.length} aria-label="Next hit">↓</button>
      <span class="small muted" role="status" data-role="hits">${wanted && (hits.length ? `${Math.min(present + 1, hits.length)} of ${hits.length}` : "not found")}</span>
      <span class="small muted push">${lines.length} lines${reader.current?.dropped ? `, ${reader.current.dropped} older lines not kept` : ""}${reader.current?.over ? ", the job has ended" : ""}</span></div>
    ${reader.current?.problem && html`<p class="notice">${reader.current.problem}</p>`}
    <div class="log" ref=${list.ref} onScroll=${scrolled} tabindex="0" role="region" aria-label="Log">
      <${Space} rows=${list.first} rowHeight=${ROW} />
      ${lines.slice(list.first, list.last).map((line, n) => html`<div key=${list.first + n} class=${mark(list.first + n, marked, hits[present])}>
        ${line.pieces.map((piece) => (piece.classes ? html`<span class=${piece.classes}>${piece.text}</span>` : piece.text))}</div>`)}
      <${Space} rows=${lines.length - list.last} rowHeight=${ROW} /></div>`;
}

function mark(number, marked, present) {
  return `log-line${marked.has(number) ? " hit" : ""}${number === present ? " present" : ""}`;
}

function found(lines, wanted) {
  const text = wanted.toLowerCase();
  return text ? lines.flatMap((line, number) => (line.text.toLowerCase().includes(text) ? [number] : [])) : [];
}
