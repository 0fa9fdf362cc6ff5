// What is around every view: navigation, banner, and what a page without a token says.

import { retryNow } from "./feed.js";
import { html, useEffect, useRef } from "./html.js";
import { useRoute } from "./router.js";
import { useStore } from "./store.js";
import { ThemeSwitch } from "./theme.js";
import { Devices } from "./views/devices.js";
import { History } from "./views/history.js";
import { JobPage } from "./views/job_page.js";
import { Jobs } from "./views/jobs.js";
import { Services } from "./views/services.js";
import { TimelineView } from "./views/timeline.js";
import { WhatIf } from "./views/what_if.js";

const VIEWS = {
  devices: ["Devices", Devices],
  timeline: ["Timeline", TimelineView],
  jobs: ["Jobs", Jobs],
  services: ["Services", Services],
  "what-if": ["What if", WhatIf],
  history: ["History", History],
};

export function Shell() {
  const store = useStore();
  const [name, ...rest] = useRoute();
  const [label, View] = VIEWS[name] ?? VIEWS.devices;
  const title = name === "jobs" && rest.length ? `Job ${rest[0]}` : label;
  useEffect(() => {
    document.title = `${title} – Carpool`;
  }, [title]);
  if (store.phase === "link") return html`<${NoToken} problem=${store.problem} />`;
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${toMain}>Skip to the content</a>
    <${Navigation} store=${store} current=${VIEWS[name] ? name : "devices"} />
    <main id="main" tabindex="-1">
      <${Banner} store=${store} />
      ${store.version === null ? html`<p class="starting" role="status">Connecting…</p>` : null}
      ${store.version !== null && (name === "jobs" && rest.length
        ? html`<${JobPage} key=${rest[0]} id=${Number(rest[0])} />` : html`<${View} key=${name} />`)}
    </main>
  </div>`;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Navigation({ store, current }) {
  const jobs = [...store.jobs.values()];
  const active = jobs.filter((job) => job.outcome === null);
  return html`<nav class="side" aria-label="Views">
    <div class="brand">Carpool</div>
    <ul>${Object.entries(VIEWS).map(([name, [label]]) => html`<li key=${name}>
      <a href=${`#/${name}`} aria-current=${name === current ? "page" : undefined}>${label}</a></li>`)}</ul>
    <div class="side-foot">
      <${Fact} label="jobs" value=${`${active.length} active`} />
      <${Fact} label="computing" value=${active.filter((job) => job.holds_turn).length} />
      <${Fact} label="policy" value=${store.policy?.name ?? "–"} />
      <${Fact} label="user" value=${store.user?.name ?? "–"} />
      <${Fact} label="version" value=${store.version?.version ?? "–"} />
      <${ThemeSwitch} />
    </div>
  </nav>`;
}

function Fact({ label, value }) {
  return html`<div class="fact"><span>${label}</span><b>${value}</b></div>`;
}

function Banner({ store }) {
  if (store.phase === "starting" || (store.reaches && (store.connected || !store.text))) return null;
  const text = store.reaches ? store.text || "the daemon is gone"
    : "The dashboard's process does not answer. Is `carpool dashboard` still running? The page tries again.";
  return html`<div class="banner" role="alert">
    <b>${store.reaches ? "The daemon is gone." : "Not connected."}</b> <span>${text}</span>
    ${store.version !== null && html` <span>The page shows the last known state.</span>`}
    ${!store.reaches && html` <button onClick=${retryNow}>Try now</button>`}
  </div>`;
}

function NoToken({ problem }) {
  const heading = useRef(null);
  useEffect(() => heading.current.focus(), []);
  return html`<main class="no-token">
    <h1 tabindex="-1" ref=${heading}>This page needs a link</h1>
    ${problem && html`<p role="alert" class="bad">${problem}</p>`}
    <p>A link is good once, and for one tab. To get a new one, go to the terminal in which
      <code>carpool dashboard</code> runs, and press <kbd>Enter</kbd>: the terminal prints an address that you can open here.</p>
    <p>If the command no longer runs there, start it again: <code>carpool dashboard</code>.</p>
  </main>`;
}
