// The timeline of all devices: turns, moves, requests and pauses, live, and back to what is kept.

import * as format from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { TimelineCanvas } from "../timeline/canvas.js";
import { BlockDetail } from "../timeline/detail.js";
import { listen } from "../timeline/input.js";
import { TimeWindow } from "../timeline/window.js";

const FIRST_SPAN_US = 60e6;
const SPANS = { "1 second": 1e6, "10 seconds": 10e6, "1 minute": 60e6, "10 minutes": 600e6, "1 hour": 3600e6, "1 day": 86_400e6 };
const LABEL = "Timeline of turns. Arrow keys left and right move, plus and minus zoom, f follows, brackets select blocks, arrow keys up and down change the row.";

export function TimelineView() {
  const canvas = useRef(null);
  const view = useRef(null);
  const [found, setFound] = useState(null);
  const [facts, setFacts] = useState({ follow: true, text: "", problem: "" });
  useEffect(() => {
    const made = new TimelineCanvas(canvas.current, new TimeWindow(FIRST_SPAN_US), { onSelect: setFound, onView: () => setFacts((old) => same(old, describe(made))) });
    view.current = globalThis.carpoolTimeline = made;
    const quiet = listen(made);
    return () => (quiet(), made.close());
  }, []);
  const act = (change) => () => {
    change(view.current);
    view.current.request();
  };
  return html`<div class="head"><h1>Timeline</h1><span class="muted" data-role="span">${facts.text}</span></div>
    <div class="row controls">
      <button aria-pressed=${String(facts.follow)} onClick=${act(({ window }) => (window.follow = !window.follow))}>Follow now</button>
      <button onClick=${act(({ window }) => window.zoom(0.5, 0.5))} aria-label="Zoom in">+</button>
      <button onClick=${act(({ window }) => window.zoom(2, 0.5))} aria-label="Zoom out">−</button>
      <button onClick=${act(({ window }) => window.pan(-0.5))} aria-label="Back in time">←</button>
      <button onClick=${act(({ window }) => window.pan(0.5))} aria-label="Forward in time">→</button>
      ${Object.entries(SPANS).map(([name, span]) => html`<button class="quiet" key=${name} onClick=${act(({ window }) => window.zoom(span / window.span, 0.5))}>${name}</button>`)}
    </div>
    ${facts.problem && html`<p class="notice bad" role="alert">${facts.problem}</p>`}
    <div class="timeline"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="timeline" aria-label=${LABEL}></canvas></div>
    <div class="card timeline-detail" aria-live="polite" data-role="detail"><${BlockDetail} found=${found} /></div>
    <p class="notice">Wheel or <kbd>+</kbd> <kbd>−</kbd>: zoom · drag or <kbd>←</kbd> <kbd>→</kbd>: move · <kbd>f</kbd>: follow ·
      <kbd>[</kbd> <kbd>]</kbd>: previous and next block · <kbd>↑</kbd> <kbd>↓</kbd>: another row. A number with × stands for so many turns in one block.</p>`;
}

function describe({ window, data }) {
  const kept = data.answer?.kept_from_us;
  const older = kept && window.begin < kept ? `; nothing is kept from before ${format.clock(kept)}` : "";
  return { follow: window.follow, problem: data.problem, text: `${format.time(window.span)} until ${window.follow ? "now" : `${format.clock(window.end).slice(0, 10)} ${format.preciseTime(window.end, window.span / 10)}`}${older}` };
}

function same(old, next) {
  return old.follow === next.follow && old.text === next.text && old.problem === next.problem ? old : next;
}
