// The WebSocket: one per tab.  It comes back by itself, after longer and longer pauses.

import { forget, token } from "./session.js";
import { take, update } from "./store.js";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8000;
const UNKNOWN_TOKEN = 4401;

let pause = FIRST_PAUSE_MS;
let waiting = null;

function address() {
  const base = new URL("ws", document.baseURI);
  base.protocol = base.protocol.replace("http", "ws");
  return base;
}

/** Connect, and stay connected as long as the token is good. */
export function follow() {
  waiting = null;
  const socket = new WebSocket(address());
  socket.onopen = () => socket.send(JSON.stringify({ token: token() }));
  socket.onmessage = (event) => {
    pause = FIRST_PAUSE_MS;
    update({ reaches: true });
    take(JSON.parse(event.data));
  };
  socket.onclose = (event) => (event.code === UNKNOWN_TOKEN ? ended() : again());
}

function ended() {
  forget();
  update({ phase: "link", problem: "this tab's link is from another `carpool dashboard`, or is no longer valid" });
}

function again() {
  update({ reaches: false });
  // Tabs that lost the same process do not come back in the same moment.
  waiting = setTimeout(follow, pause * (0.75 + Math.random() / 2));
  pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
}

/** Try now, instead of after the pause. */
export function retryNow() {
  if (waiting === null) return;
  clearTimeout(waiting);
  pause = FIRST_PAUSE_MS;
  follow();
}
