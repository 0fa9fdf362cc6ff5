// One frame of a timeline on a 2D canvas: at most one block per pixel and lane, whatever there is to show.

import { jobColour } from "../colours.js";
import { nowUs, preciseTime, clock } from "../format.js";
import { cssColour } from "../theme.js";
import { AXIS, firstAfter, LABELS } from "./rows.js";
import { stepFor } from "./window.js";

const MARK_ROOM = 110; // pixels between two marks of the axis
const TEXT_ROOM = 26; // a block at least so wide says its job
const FONT = "11px system-ui, sans-serif";
const DIMMED = 0.25;

export function colours() {
  return { ink: cssColour("--ink"), muted: cssColour("--muted"), line: cssColour("--line"), raised: cssColour("--raised"), accent: cssColour("--accent"), selected: cssColour("--selected") };
}

/** `scene`: {rows, window, width, height, palette, selected, only}; sizes are CSS pixels. */
export function draw(context, scene) {
  const { width, height, palette } = scene;
  context.fillStyle = palette.raised;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  drawAxis(context, scene);
  context.save();
  context.beginPath();
  context.rect(LABELS, AXIS, width - LABELS, height - AXIS);
  context.clip();
  let drawn = 0;
  for (const row of scene.rows) drawn += drawRow(context, scene, row);
  drawNow(context, scene);
  context.restore();
  drawLabels(context, scene);
  return drawn;
}

function drawAxis(context, { window, width, height, palette }) {
  const perPixel = window.span / (width - LABELS);
  const step = stepFor(perPixel, MARK_ROOM);
  context.strokeStyle = palette.line;
  context.fillStyle = palette.muted;
  context.lineWidth = 1;
  context.textAlign = "left";
  context.beginPath();
  for (let mark = Math.ceil(window.begin / step) * step; mark <= window.end; mark += step) {
    const x = Math.round(LABELS + (mark - window.begin) / perPixel) + 0.5;
    context.moveTo(x, AXIS - 8);
    context.lineTo(x, height);
    const text = step >= 86_400e6 ? clock(mark).slice(5, 16) : preciseTime(mark, step);
    if (x + 4 + context.measureText(text).width <= width) context.fillText(text, x + 4, AXIS / 2);
  }
  context.stroke();
}

function drawRow(context, scene, row) {
  const { width, palette } = scene;
  context.fillStyle = palette.line;
  context.fillRect(LABELS, row.top + row.height - 1, width - LABELS, 1);
  if (row.kind === "device") return 0;
  return drawBlocks(context, scene, row, row.blocks) + drawBlocks(context, scene, row, row.live);
}

function drawBlocks(context, { window, width, selected, palette, only }, row, blocks) {
  const scale = (width - LABELS) / window.span;
  const top = row.top + (row.kind === "lane" ? 3 : 4);
  const height = row.height - (row.kind === "lane" ? 7 : 9);
  const now = nowUs();
  let reached = LABELS - 1; // of blocks that fall into one pixel, the first is drawn
  let colour = "";
  let drawn = 0;
  for (let n = firstAfter(blocks, window.begin); n < blocks.length; n++) {
    const block = blocks[n];
    if (block[0] > window.end) break;
    const left = Math.round(LABELS + (block[0] - window.begin) * scale);
    const right = Math.round(LABELS + ((block[1] ?? Math.max(now, block[0])) - window.begin) * scale);
    const x = Math.max(left, reached);
    if (right <= x && left < reached && block !== selected) continue; // its pixel is taken
    const end = Math.min(Math.max(right, x + 1), width);
    const wanted = jobColour(block[2]);
    if (wanted !== colour) context.fillStyle = colour = wanted;
    if (only !== undefined) context.globalAlpha = block[2] === only ? 1 : DIMMED;
    context.fillRect(x, top, end - x, height);
    drawn += 1;
    if (end - x > TEXT_ROOM) {
      drawText(context, block, row, x, top, end - x, height);
      colour = "";
    }
    if (block === selected) {
      outline(context, palette, x, top, end - x, height);
      colour = "";
    }
    reached = end;
  }
  context.globalAlpha = 1;
  return drawn;
}

function drawText(context, block, row, x, top, width, height) {
  context.fillStyle = "rgba(0,0,0,0.55)";
  context.fillRect(x, top, 1, height); // neighbours of similar colours stay apart
  if (height < 10) return;
  context.fillStyle = "#111";
  context.textAlign = "left";
  const text = block[2] === null ? "other" : block[3] > 1 ? `${block[2]} (${block[3]}×)` : String(block[2]);
  context.fillText(text, x + 4, top + height / 2 + 0.5, width - 6);
}

function outline(context, palette, x, top, width, height) {
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.strokeRect(x, top - 1, Math.max(width, 2), height + 2);
}

function drawNow(context, { window, width, height, palette }) {
  const x = LABELS + ((nowUs() - window.begin) * (width - LABELS)) / window.span;
  if (x < LABELS || x > width) return;
  context.fillStyle = palette.accent;
  context.fillRect(Math.round(x), AXIS, 1, height);
}

function drawLabels(context, { rows, palette, height }) {
  context.fillStyle = palette.raised;
  context.fillRect(0, AXIS, LABELS - 1, height);
  context.fillStyle = palette.line;
  context.fillRect(LABELS - 1, 0, 1, height);
  context.textAlign = "left";
  for (const row of rows) {
    context.fillStyle = row.kind === "device" ? palette.ink : palette.muted;
    context.font = row.kind === "device" ? `600 ${FONT}` : FONT;
    context.fillText(row.label, row.kind === "device" ? 10 : 20, row.top + row.height / 2, LABELS - 24);
  }
  context.font = FONT;
}
