// Runs of jobs on lanes as a still picture: no data of its own, the same drawing as the live timeline.

import { html, useEffect, useRef, useState } from "../html.js";
import { JobLink } from "../parts.js";
import * as format from "../format.js";
import { onTheme } from "../theme.js";
import { colours, draw } from "./draw.js";
import { layOut } from "./rows.js";

/** `lanes`: [{device, lane, runs: [[begin_us, end_us, job]]}]; `range`: [begin_us, end_us] of the picture. */
export function Runs({ lanes, range, label }) {
  const canvas = useRef(null);
  const rows = useRef([]);
  const [found, setFound] = useState(null);
  const window = { begin: range[0], end: range[1], span: Math.max(1, range[1] - range[0]) };
  useEffect(() => {
    const known = lanes.map(({ device, lane, runs }) => ({ device, lane, live: [], turns: runs.map(([begin, end, job]) => [begin, end, job, 1, "", null]) }));
    const paint = () => {
      const { rows: laid, height } = layOut({ lanes: () => known, answer: null }, []);
      rows.current = laid;
      const context = sized(canvas.current, height);
      draw(context, { rows: laid, window, width: canvas.current.clientWidth, height, palette: colours(), selected: found?.block });
    };
    paint();
    const observer = new ResizeObserver(paint);
    observer.observe(canvas.current.parentElement);
    const quiet = onTheme(paint);
    return () => (observer.disconnect(), quiet());
  }, [lanes, range[0], range[1], found]);
  const pick = (event) => {
    const row = rows.current.find((one) => event.offsetY >= one.top && event.offsetY < one.top + one.height);
    const us = window.begin + ((event.offsetX - 92) / (canvas.current.clientWidth - 92)) * window.span;
    const block = row?.blocks.find((one) => one[0] <= us && us <= one[1]);
    setFound(block ? { block } : null);
  };
  return html`<div class="timeline"><canvas class="still" ref=${canvas} role="img" aria-label=${`${label}; ${lanes.length} lanes`} onClick=${pick}></canvas></div>
    <p class="notice" role="status">${found ? html`<${JobLink} id=${found.block[2]} />: ${format.clock(found.block[0])}, for ${format.time(found.block[1] - found.block[0])}` : "Click on a run to see which job it is."}</p>`;
}

function sized(canvas, height) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
