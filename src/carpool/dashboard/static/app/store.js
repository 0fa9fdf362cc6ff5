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
  engines: [],
  jobs: new Map(),
  oldest: null, // the id from which on `jobs` has every ended job
  more: false, // the daemon has ended jobs before `oldest`
  room: 0, // the most ended jobs that `jobs` keeps
  changed: 0, // grows with each change of the jobs
};

const ROOM = 5000; // rows of ended jobs; asking for older ones makes room for them
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
    policy: message.policy, models: message.models, engines: message.engines, more: message.more, changed: store.changed + 1,
    jobs: new Map(message.jobs.map((job) => [job.id, job])), oldest: ended(message.jobs).at(-1) ?? null, room: ROOM,
  });
}

/** Ids of the ended jobs among `jobs`, the newest job first. */
function ended(jobs) {
  return jobs.filter((job) => job.phase === "ended").map((job) => job.id).sort((one, other) => other - one);
}

/** Drops the older half of the ended jobs when there are more than `store.room`, so that a tab can stay open for weeks. */
function forgetOldest() {
  const ids = ended([...store.jobs.values()]);
  if (ids.length <= store.room) return {};
  for (const id of ids.splice(store.room / 2)) store.jobs.delete(id);
  return { more: true, oldest: ids.at(-1) };
}

function takeChanges(message) {
  const changes = {};
  for (const field of ["devices", "policy", "models", "engines"]) if (message[field]) changes[field] = message[field];
  for (const job of message.jobs ?? []) store.jobs.set(job.id, job);
  for (const id of message.removed ?? []) store.jobs.delete(id);
  if (message.jobs?.length || message.removed?.length) changes.changed = store.changed + 1;
  if (message.jobs?.some((job) => job.phase === "ended")) Object.assign(changes, forgetOldest());
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

/** Jobs as an answer had them, which may be newer than what is here. */
export function addJobs(jobs) {
  for (const job of jobs) store.jobs.set(job.id, job);
  update({ changed: store.changed + 1 });
}

/** The next ended jobs before `store.oldest`; `more`: there are still older ones. */
export function addOlder(jobs, more) {
  addJobs(jobs);
  update({ more, oldest: ended(jobs).at(-1) ?? store.oldest, room: store.room + jobs.length });
}

/** A job that the daemon does not know any more. */
export function removeJob(id) {
  if (store.jobs.delete(id)) update({ changed: store.changed + 1 });
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
