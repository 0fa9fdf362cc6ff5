// A job's memory while its page is open, and its turns of the last minutes.

import { Chart } from "../chart.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { onMessage, store } from "../store.js";
import { TimelineCanvas } from "../timeline/canvas.js";
import { listen } from "../timeline/input.js";
import { TimeWindow } from "../timeline/window.js";

const MOST_POINTS = 1200;
const SPAN_US = 60e6;

function point(job) {
  return [Date.now() / 1000, job.persistent_bytes, job.ephemeral_bytes, job.stored_bytes];
}

export function MemoryHistory({ id }) {
  const [points, setPoints] = useState(() => [point(store.jobs.get(id))]);
  useEffect(() => {
    const note = () => {
      const job = store.jobs.get(id);
      if (job && job.outcome === null) setPoints((old) => [...old.slice(-(MOST_POINTS - 1)), point(job)]);
    };
    const timer = setInterval(note, 1000);
    const quiet = onMessage((message) => message.jobs?.some((job) => job.id === id) && note());
    return () => (clearInterval(timer), quiet());
  }, [id]);
  const { times, series } = useMemo(() => lines(points), [points]);
  return times.length > 1 ? html`<${Chart} binary times=${times} series=${series} least=${1 << 20} label="Memory of the job since this page was opened" />`
    : html`<p class="empty">the chart starts now, and grows while this page is open</p>`;
}

function lines(points) {
  const names = ["persistent", "in its lane", "offloaded"];
  return {
    times: points.map((one) => one[0]),
    series: names.map((label, n) => ({ label, show: format.size, values: points.map((one) => one[n + 1]) })),
  };
}

/** The device's timeline, in which the other jobs fade behind this one. */
export function JobTurns({ job }) {
  const canvas = useRef(null);
  useEffect(() => {
    const devices = () => store.devices.devices.filter((device) => device.id === store.jobs.get(job.id)?.device);
    const view = new TimelineCanvas(canvas.current, new TimeWindow(SPAN_US), { devices, device: () => store.jobs.get(job.id)?.device, only: job.id });
    const quiet = listen(view);
    return () => (quiet(), view.close());
  }, [job.id]);
  return html`<div class="timeline"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="timeline"
    aria-label=${`Turns of job ${job.id} on ${job.device ?? "no device"}. Arrow keys move, plus and minus zoom, f follows.`}></canvas></div>`;
}
