// A timeline on a canvas: draws when something has changed, finds blocks, and measures its own frames.

import { nowUs } from "../format.js";
import { store, subscribe } from "../store.js";
import { onTheme } from "../theme.js";
import { TimelineData } from "./data.js";
import { colours, draw } from "./draw.js";
import { firstAfter, LABELS, layOut } from "./rows.js";

const KEPT_FRAMES = 300;
const FOLLOW_MS = 100; // between two frames while nothing but the clock moves

/** Milliseconds that the last draws took: tests and `carpoolFrames` in the browser's console read them. */
globalThis.carpoolFrames = [];

export class TimelineCanvas {
  /** `onSelect` gets {row, block}, or null; `devices`: which of the store's are shown; `device`: the only one that is; `only`: a job that others fade behind. */
  constructor(canvas, window, { onSelect = () => {}, onView = () => {}, devices = () => store.devices.devices, device = () => undefined, only } = {}) {
    Object.assign(this, { canvas, window, onSelect, onView, devices, device, only });
    this.context = canvas.getContext("2d", { alpha: false });
    this.data = new TimelineData(() => this.request());
    this.palette = colours();
    this.selected = null;
    this.rows = [];
    this._frame = null;
    const observer = new ResizeObserver(() => this.request());
    observer.observe(canvas.parentElement);
    const clock = setInterval(() => this.window.follow && !document.hidden && this.request(), FOLLOW_MS);
    this._ends = [
      () => observer.disconnect(), () => clearInterval(clock), () => this.data.close(), subscribe(() => this.request()),
      onTheme(() => ((this.palette = colours()), this.request())),
    ];
    this.request();
  }

  close() {
    for (const end of this._ends) end();
    cancelAnimationFrame(this._frame);
    this._frame = -1;
  }

  /** Draw in the next frame. */
  request() {
    if (this._frame === null) this._frame = requestAnimationFrame(() => this._draw());
  }

  _draw() {
    this._frame = null;
    const begin = performance.now();
    this.window.tick();
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    this.data.want(this.window, width - LABELS);
    const { rows, height } = layOut(this.data, this.devices(), this.device());
    this.rows = rows;
    this._keepSelected();
    this._resize(width, height);
    this.drawn = draw(this.context, { rows, window: this.window, width, height, palette: this.palette, selected: this.selected?.block, only: this.only });
    globalThis.carpoolFrames.push(performance.now() - begin);
    if (globalThis.carpoolFrames.length > KEPT_FRAMES) globalThis.carpoolFrames.shift();
    this.onView();
  }

  _resize(width, height) {
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** The share of the screen at which `x` is, pixels from the canvas's left edge. */
  place(x) {
    return (x - LABELS) / (this.canvas.clientWidth - LABELS);
  }

  /** Select what is at this point, or nothing. */
  pick(x, y) {
    const row = this.rows.find((one) => y >= one.top && y < one.top + one.height);
    this.select(row && x >= LABELS ? { row, block: this._blockAt(row, x) } : null);
  }

  _blockAt(row, x) {
    const perPixel = this.window.span / (this.canvas.clientWidth - LABELS);
    const us = this.window.begin + (x - LABELS) * perPixel;
    for (const blocks of [row.live, row.blocks]) {
      // The nearest within two pixels: a turn of a microsecond has one pixel on the screen.
      const near = blocks.slice(firstAfter(blocks, us - 2 * perPixel)).find((block) => (block[1] ?? nowUs()) >= us - 2 * perPixel);
      if (near && near[0] <= us + 2 * perPixel) return near;
    }
    return null;
  }

  /** A turn that goes on ends some time, and answers bring blocks anew: the selection stays with its own. */
  _keepSelected() {
    if (!this.selected) return;
    const { row, block } = this.selected;
    const same = this.rows.find((one) => one.kind === row.kind && one.device === row.device && one.lane === row.lane);
    const found = same && [...same.live, ...same.blocks].find((one) => one[0] === block[0] && one[2] === block[2]);
    if (!found || found === block) return;
    this.selected = { row: same, block: found };
    if (found[1] !== block[1]) this.onSelect(this.selected);
  }

  select(found) {
    this.selected = found?.block ? found : null;
    this.onSelect(this.selected);
    this.request();
  }

  /** Select the next block of the row (1), or the one before (-1); without a selection, the newest on the screen. */
  step(direction) {
    const row = this.selected ? this.rows.find((one) => one.kind === this.selected.row.kind && one.device === this.selected.row.device && one.lane === this.selected.row.lane)
      : this.rows.find((one) => one.blocks.length + one.live.length > 0);
    if (!row) return;
    const blocks = [...row.blocks, ...row.live];
    const present = this.selected ? blocks.findIndex((block) => block[0] === this.selected.block[0]) : -1;
    const next = present < 0 ? blocks.findLastIndex((block) => block[0] <= this.window.end) : present + direction;
    if (!blocks[next]) return;
    this._reveal(blocks[next]);
    this.select({ row, block: blocks[next] });
  }

  /** Select in the row above (-1) or below (1), near the present block. */
  stepRow(direction) {
    const rows = this.rows.filter((one) => one.blocks.length + one.live.length > 0);
    const present = rows.findIndex((one) => this.selected && one.top === this.selected.row.top);
    const row = rows[Math.min(rows.length - 1, Math.max(0, present + direction))];
    if (!row) return;
    const us = this.selected?.block[0] ?? this.window.end;
    const blocks = [...row.blocks, ...row.live];
    this.select({ row, block: blocks[Math.min(blocks.length - 1, firstAfter(blocks, us))] });
  }

  _reveal(block) {
    if (block[0] < this.window.begin || (block[1] ?? block[0]) > this.window.end) this.window.show(block[0] - this.window.span / 2, block[0] + this.window.span / 2);
  }
}
