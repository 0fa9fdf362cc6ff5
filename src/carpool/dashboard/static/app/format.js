// Sizes, times and shares as the command line writes them.

const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

/** Bytes, as in "3.1 GiB"; null: "–". */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const [unit, factor] = SIZES.find(([, least]) => Math.abs(bytes) >= least) ?? ["B", 1];
  const value = bytes / factor;
  return `${factor === 1 || Number.isInteger(value) || value >= 100 ? Math.round(value) : value.toFixed(1)} ${unit}`;
}

/** Microseconds, as in "850 µs", "12.5 ms", "4.2 s", "1h06m". */
export function time(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${short(us / 1000)} ms`;
  if (us < 60e6) return `${short(us / 1e6)} s`;
  return duration(us);
}

function short(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, "");
}

/** Microseconds in the two largest units, as in "4s", "3m20s", "1h06m", "2d04h". */
export function duration(us) {
  if (us === null || us === undefined) return "–";
  const s = Math.max(0, Math.floor(us / 1e6));
  const two = (value) => String(value).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`;
}

/** Millionths, as in "63 %". */
export function percent(ppm) {
  return ppm === null || ppm === undefined ? "–" : `${Math.round(ppm / 1e4)} %`;
}

/** From one value to another, which is not 0, as in "+12 %", "−3 %", "0 %". */
export function change(before, after) {
  const percents = Math.round((after / before - 1) * 100);
  return `${percents > 0 ? "+" : percents < 0 ? "−" : ""}${Math.abs(percents)} %`;
}

/** A figure of a simulation with its range, as in "4.2 s (3.9 s to 4.6 s)"; without a value "–". */
export function figure(given) {
  if (!given || given.value === null) return "–";
  const [value, low, high] = [given.value, given.low, given.high].map((number) => number === null ? "" : inUnit(number, given.unit));
  return low === high ? value : `${value} (${low} to ${high})`;
}

function inUnit(number, unit) {
  return unit === "s" ? time(number * 1e6) : unit === "%" ? `${number.toFixed(1)} %` : count(Math.round(number * 100) / 100);
}

const MOST_DIGITS = 6;

/** Hours, as in "0.123 h"; on an axis with as many digits as its `step` needs. */
export function hours(value, step) {
  const digits = step === undefined ? 3 : Array.from({ length: MOST_DIGITS }, (_, n) => n).find((n) => Number.isInteger(Number((step * 10 ** n).toFixed(MOST_DIGITS))));
  return `${value.toFixed(digits ?? MOST_DIGITS)} h`;
}

export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

const two = (value) => String(value).padStart(2, "0");

/** Wall clock, as in 2026-01-31 12:00:05, in the browser's zone. */
export function clock(us) {
  if (us === null || us === undefined) return "–";
  const date = new Date(us / 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${timeOfDay(us)}`;
}

export function timeOfDay(us) {
  const date = new Date(us / 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Wall clock with as many digits as a step of `stepUs` needs. */
export function preciseTime(us, stepUs) {
  const digits = stepUs >= 1e6 ? 0 : stepUs >= 1e3 ? 3 : 6;
  if (!digits) return timeOfDay(us);
  const fraction = String(Math.floor(us % 1e6)).padStart(6, "0").slice(0, digits);
  return `${timeOfDay(us)}.${fraction}`;
}

export function nowUs() {
  return Date.now() * 1000;
}
