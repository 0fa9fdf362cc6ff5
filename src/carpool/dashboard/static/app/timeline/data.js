// Turns, moves, requests and pauses: asked for with the width of the screen, kept, and continued with what is live.

import { get, withQuery } from "../api.js";
import { onMessage } from "../store.js";

const WAIT_MS = 120; // after the last movement
const MOST_WIDTH = 4000;
const MARGIN = 0.5; // of the screen, loaded besides on both sides
const COARSER = 1.5; // so much coarser than the screen may a kept answer be
const KEPT_ANSWERS = 12;
const AGAIN_MS = 5000; // while the view follows
const MOST_LIVE = 4000; // blocks of a lane; then the daemon merges them

export class TimelineData {
  /** `changed` is called when there is something new to draw. */
  constructor(changed, source = get) {
    this._changed = changed;
    this._source = source;
    this._answers = [];
    this._live = new Map(); // "device lane" -> [[begin, end|null, job, 1, cause, busy]]
    this._timer = null;
    this._asked = null;
    this._loadedAt = 0;
    this.answer = null;
    this.problem = "";
    this._stop = onMessage((message) => message.kind === "changes" && message.turns && this._append(message.turns));
  }

  close() {
    this._stop();
    clearTimeout(this._timer);
    this._asked?.abort();
  }

  /** Ask for what `window` shows, unless a kept answer is good enough. */
  want(window, width) {
    const good = this._answers.findLast((one) => fits(one, window, width));
    if (good) this.answer = good;
    const stale = window.follow && performance.now() - this._loadedAt > AGAIN_MS;
    if ((good && !stale) || this._timer !== null) return;
    const wait = this.problem ? AGAIN_MS : this.answer === null ? 0 : WAIT_MS;
    this._timer = setTimeout(() => this._load(window, width), wait);
  }

  async _load(window, width) {
    const span = window.span;
    const asked = Math.min(MOST_WIDTH, Math.round(width * (1 + 2 * MARGIN)));
    const range = { since_us: Math.floor(window.begin - span * MARGIN), until_us: Math.ceil(window.end + span * MARGIN) };
    this._asked?.abort();
    this._asked = new AbortController();
    this._loadedAt = performance.now();
    try {
      const answer = await this._source(withQuery("timeline", { ...range, width: asked }), this._asked.signal);
      this._keep({ ...answer, ...range, asked_us: Date.now() * 1000, usPerPixel: (range.until_us - range.since_us) / asked });
      this.problem = "";
    } catch (error) {
      if (error.name !== "AbortError") this.problem = error.text ?? error.message;
    }
    this._timer = null;
    this._changed();
  }

  _keep(answer) {
    this._answers = [...this._answers.slice(-(KEPT_ANSWERS - 1)), answer];
    this.answer = answer;
    const newest = Math.min(answer.until_us, answer.asked_us);
    for (const [key, blocks] of this._live) {
      // What the answer has, too, is not kept a second time; what began before it and goes on is.
      const rest = blocks.filter((block) => block[1] === null || block[1] > newest - 2e6);
      rest.length ? this._live.set(key, rest) : this._live.delete(key);
    }
  }

  _append(turns) {
    for (const [device, lane, job, begin, end, cause] of turns) {
      const key = `${device} ${lane}`;
      const blocks = this._live.get(key) ?? [];
      const known = blocks.findLastIndex((block) => block[0] === begin);
      const block = [begin, end, job, 1, cause, (end ?? begin) - begin];
      if (known >= 0) blocks[known] = block;
      else blocks.push(block);
      if (blocks.length > MOST_LIVE) blocks.splice(0, blocks.length - MOST_LIVE);
      this._live.set(key, blocks);
    }
    this._changed();
  }

  /** [{device, lane, turns, live}] of all lanes that are known of: `live` continues where `turns` end. */
  lanes() {
    const found = new Map();
    for (const { device, lane, turns } of this.answer?.lanes ?? []) found.set(`${device} ${lane}`, { device, lane, turns, live: [] });
    for (const [key, blocks] of this._live) {
      const [device, lane] = [key.slice(0, key.lastIndexOf(" ")), Number(key.slice(key.lastIndexOf(" ") + 1))];
      const known = found.get(key) ?? { device, lane, turns: [], live: [] };
      const last = known.turns.at(-1);
      found.set(key, { ...known, live: last ? blocks.filter((block) => block[0] >= last[0] && (block[0] > last[0] || last[4] === "")) : blocks });
    }
    return [...found.values()].sort((a, b) => a.device.localeCompare(b.device, "en", { numeric: true }) || a.lane - b.lane);
  }
}

function fits(answer, window, width) {
  const covered = answer.since_us <= window.begin && (answer.until_us >= window.end || (window.follow && answer.until_us >= Date.now() * 1000));
  const fresh = Date.now() * 1000 - answer.asked_us < AGAIN_MS * 1000; // what had not happened then may have by now
  return covered && (window.follow || fresh || window.end <= answer.asked_us) && answer.usPerPixel <= (COARSER * window.span) / width;
}
