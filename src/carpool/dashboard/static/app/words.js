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

const INTERPRETER = /^((python|pypy)[\d.]*|(ba|da|z|k)?sh)$/;
const FLAGS = /^-[aBbdEefhIiOPqSsuvx]+$/;

const file = (path) => path.replace(/\/+$/, "").split("/").at(-1) || path;
const short = (word) => (word.startsWith("/") ? file(word) : word);

/** The words by which people know a command: `carpool.protocol.job_names`. */
function shown(command) {
  if (!command.length) return [];
  const words = [short(command[0]), ...command.slice(1)];
  if (words[0] === "env" && words.length > 1 && INTERPRETER.test(file(words[1]))) return shown(words.slice(1));
  const script = words.findIndex((word, n) => n > 0 && !FLAGS.test(word));
  if (script < 0 || ["", "-"].includes(words[script].slice(0, 1)) || !INTERPRETER.test(file(words[0]))) return words;
  return [short(words[script]), ...words.slice(script + 1)];
}

/** As in `carpool ls`: 7_3 for an element of an array. */
export function id(job) {
  return job.array === null ? String(job.id) : `${job.array}_${job.index}`;
}

/** The name, or for a job without one its script and arguments; of another user's job these may be hidden. */
export function title(job) {
  return job.name || shown(job.command).join(" ") || "–";
}

/** The phase, or how it ended. */
export function state(job) {
  const how = job.signal !== null ? `signal ${job.signal}` : job.exit_code;
  if (job.outcome === "failed") return how === null ? "failed" : `failed (${how})`;
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

function reason({ reason: { code, text }, begin_us }) {
  return code === "begin" && text && begin_us ? `${text}, at ${format.clock(begin_us)}` : text || code;
}

/** The reason of the present wait or of the outcome; of a job that runs, what is special about it. */
export function why(job) {
  if (job.reason !== null) return reason(job);
  if (job.outcome !== null) return "";
  const unmanaged = job.unmanaged === null ? "" : `unmanaged: ${job.unmanaged}`;
  const alone = job.alone === null || job.alone === job.unmanaged ? "" : `needs exclusive use of its device: ${job.alone}`;
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

/** Share of the iterations that is done, 0 to 1; null where the number of iterations is unknown. */
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
