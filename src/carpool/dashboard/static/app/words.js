// Facts about jobs in words: the same ones as those of `carpool ls`.

import * as format from "./format.js";

export const CAUSES = {
  boundary: "gave way at the end of an iteration",
  early: "gave way before the end of an iteration, where little has to be saved",
  forced: "was stopped in the middle of an iteration",
  exit: "its process ended",
  paused: "was paused for a service, or by its user",
  left: "left the device",
  unknown: "not known: the daemon ended meanwhile",
  "": "goes on",
};

/** The name, or the command for a job without one; of another user's job both may be hidden. */
export function title(job) {
  return job.name || job.command.join(" ") || "–";
}

/** The phase, or how it ended. */
export function state(job) {
  if (job.outcome === "failed") return job.signal !== null ? `failed (signal ${job.signal})` : `failed (${job.exit_code})`;
  if (job.outcome !== null) return job.outcome.replaceAll("_", " ");
  const paused = job.paused_by !== null && job.phase !== "stopping";
  const phase = paused ? "paused" : job.held_by !== null && job.phase === "queued" ? "held"
    : job.offloaded && job.phase === "running" ? "offloaded" : job.phase;
  return job.attempt === 1 ? phase : `${phase}, attempt ${job.attempt}`;
}

const BAD = ["failed", "lost", "refused", "timed_out"];

/** The word that the style sheet and the sign before the state are chosen by. */
export function tone(job) {
  if (job.outcome !== null) return BAD.includes(job.outcome) ? "bad" : "over";
  if (job.holds_turn) return "turn";
  if (job.paused_by !== null || job.held_by !== null) return "halted";
  return job.phase === "running" ? "runs" : "waits";
}

export const SIGNS = { bad: "✕", over: "✓", turn: "▶", halted: "‖", runs: "●", waits: "○" };

export function sign(job) {
  return job.outcome === "cancelled" ? "⊘" : SIGNS[tone(job)];
}

/** The reason of the present wait or of the outcome; of a job that runs, what is special about it. */
export function why(job) {
  if (job.reason !== null) return job.reason.text || job.reason.code;
  if (job.outcome !== null) return "";
  const unmanaged = job.unmanaged === null ? "" : `unmanaged: ${job.unmanaged}`;
  const alone = job.alone === null || job.alone === job.unmanaged ? "" : `needs its device to itself: ${job.alone}`;
  const fixed = job.immovable === null ? "" : `is not moved: ${job.immovable}`;
  return [unmanaged, alone, fixed].filter(Boolean).join("; ");
}

export function memory(job) {
  return job.persistent_bytes || job.ephemeral_bytes
    ? `${format.size(job.persistent_bytes)} / ${format.size(job.ephemeral_bytes)}` : "–";
}

export function iterations(job) {
  if (!job.iterations && job.iterations_total === null) return "–";
  const done = format.count(job.iterations);
  return job.iterations_total === null ? done : `${done} / ${format.count(job.iterations_total)}`;
}

/** Share of the iterations that is done, 0 to 1; null where nobody knows how many there are. */
export function progress(job) {
  return job.iterations_total ? Math.min(1, job.iterations / job.iterations_total) : null;
}

/** Turn time that it still needs, by its pace so far, in microseconds; null: not known. */
export function leftUs(job) {
  if (job.outcome !== null || !job.iterations_total || !job.iteration_us) return null;
  return Math.max(0, job.iterations_total - job.iterations) * job.iteration_us;
}

/** From submission to the end, or to now. */
export function ageUs(job) {
  return (job.ended_us ?? format.nowUs()) - job.submitted_us;
}

export function user(job, own) {
  return own && job.owner === own.uid ? own.name : `uid ${job.owner}`;
}
