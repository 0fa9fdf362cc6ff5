// A colour of its own for each job, the same in all views; blocks carry the job's number besides.

const GOLDEN_ANGLE = 137.508;
const cache = new Map();
const LARGEST = 20_000;

/** A fill that black text can be read on, in both schemes. */
export function jobColour(id) {
  if (id === null || id === undefined) return "#9a9a9a";
  let colour = cache.get(id);
  if (colour === undefined) {
    if (cache.size > LARGEST) cache.clear();
    colour = toRgb(0.76 - 0.06 * (id % 3), 0.115, (id * GOLDEN_ANGLE) % 360);
    cache.set(id, colour);
  }
  return colour;
}

// Canvas takes "oklch(...)" in new browsers only, and parses it slowly: the colour is computed once.
function toRgb(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return `#${linear.map((value) => Math.round(255 * gamma(value)).toString(16).padStart(2, "0")).join("")}`;
}

function gamma(value) {
  const inside = Math.min(1, Math.max(0, value));
  return inside <= 0.0031308 ? 12.92 * inside : 1.055 * inside ** (1 / 2.4) - 0.055;
}
