// What the page knows of the daemon.  Views are told at most once a frame, whatever arrives in between.

import { useEffect, useReducer } from "./html.js";

/** `phase`: "starting" | "link" (no token) | "live". */
export const store = {
  phase: "starting",
  problem: "",
  connected: false, // to the daemon
  reaches: true, // the dashboard's own process
  text: "", // why not
  version: null,
  user: null,
  devices: { devices: [], store: null },
  policy: null,
  models: [],
  jobs: new Map(),
  more: false,
  changed: 0, // grows with each change of the jobs
};

const listeners = new Set();
const messageListeners = new Set();
let scheduled = false;
let version = 0; // of the store

/** `listener` is called after changes, at most once a frame; returns what ends that. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** `listener` is called with each message as it arrives. */
export function onMessage(listener) {
  messageListeners.add(listener);
  return () => messageListeners.delete(listener);
}

function tell() {
  scheduled = false;
  for (const listener of [...listeners]) listener();
}

export function update(changes) {
  Object.assign(store, changes);
  version += 1;
  if (scheduled) return;
  scheduled = true;
  // A tab in the background gets no frames; the timer keeps what is shown from growing stale there.
  document.hidden ? setTimeout(tell, 1000) : requestAnimationFrame(tell);
}

function takeState(message) {
  update({
    connected: true, text: "", version: message.version, user: message.user, devices: message.devices,
    policy: message.policy, models: message.models, more: message.more, changed: store.changed + 1,
    jobs: new Map(message.jobs.map((job) => [job.id, job])),
  });
}

function takeChanges(message) {
  const changes = {};
  for (const field of ["devices", "policy", "models"]) if (message[field]) changes[field] = message[field];
  for (const job of message.jobs ?? []) store.jobs.set(job.id, job);
  for (const id of message.removed ?? []) store.jobs.delete(id);
  if (message.jobs?.length || message.removed?.length) changes.changed = store.changed + 1;
  update(changes);
}

const TAKES = {
  state: takeState,
  changes: takeChanges,
  daemon: (message) => update({ connected: message.connected, text: message.text ?? "" }),
};

/** A message of the WebSocket. */
export function take(message) {
  TAKES[message.kind]?.(message);
  for (const listener of [...messageListeners]) listener(message);
}

/** Older jobs, or one that an answer had newer. */
export function addJobs(jobs, more) {
  for (const job of jobs) store.jobs.set(job.id, job);
  update({ changed: store.changed + 1, more: more ?? store.more });
}

/** The store, for a component that is drawn again when anything has changed. */
export function useStore() {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const drawn = version;
  useEffect(() => {
    if (drawn !== version) redraw(); // something has changed between the drawing and this
    return subscribe(redraw);
  }, []);
  return store;
}
