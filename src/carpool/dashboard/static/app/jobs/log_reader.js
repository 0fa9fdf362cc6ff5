// A job's output as it appears: bytes from the daemon, lines here, the newest 5,000 of them kept.

import { ask, withQuery } from "../api.js";
import { pieces, settled } from "../ansi.js";

export const MOST_LINES = 5000;
const LONGEST = 20_000; // characters of a line that are shown
const TELL_MS = 50;

export class LogReader {
  /** `changed` is called when there are new lines, but not for each of them. */
  constructor(job, attempt, changed) {
    this.lines = []; // {text, pieces}
    this.dropped = 0;
    this.problem = "";
    this.over = false;
    this._changed = changed;
    this._style = {};
    this._rest = "";
    this._stop = new AbortController();
    this._timer = null;
    this._read(job, attempt);
  }

  close() {
    this._stop.abort();
    clearTimeout(this._timer);
    this._changed = () => {};
  }

  async _read(job, attempt) {
    try {
      const answer = await ask("GET", withQuery(`daemon/v1/jobs/${job}/logs`, { follow: 1, attempt }), undefined, this._stop.signal);
      const decoder = new TextDecoder();
      const reader = answer.body.getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) this._take(decoder.decode(part.value, { stream: true }));
      this.over = true;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.problem = error.text ?? "the connection was lost; open the page again to go on reading";
    }
    this._tell();
  }

  _take(text) {
    const parts = (this._rest + text).split("\n");
    this._rest = parts.pop().slice(-LONGEST * 4);
    for (const part of parts) this.lines.push(this._line(part));
    const surplus = this.lines.length - MOST_LINES;
    if (surplus > 0) {
      this.lines.splice(0, surplus);
      this.dropped += surplus;
    }
    this._tell();
  }

  _line(text) {
    const { pieces: found, style } = pieces(settled(text).slice(0, LONGEST), this._style);
    this._style = style;
    return { text: found.map((piece) => piece.text).join(""), pieces: found };
  }

  /** All lines, with what has been written of the one that has not ended. */
  shown() {
    if (!this._rest) return this.lines;
    const { pieces: found } = pieces(settled(this._rest).slice(0, LONGEST), this._style);
    return [...this.lines, { text: found.map((piece) => piece.text).join(""), pieces: found }];
  }

  _tell() {
    this._timer ??= setTimeout(() => ((this._timer = null), this._changed()), TELL_MS);
  }
}
