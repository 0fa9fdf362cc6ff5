// A log's line as pieces of text with classes: colours of terminals without a single tag of the log's own.

const SEQUENCE = /\x1b\[([0-9;:]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["struck"] };

/** [{text, classes}] of one line, and the style with which the next line begins. */
export function pieces(line, style = {}) {
  const found = [];
  let place = 0;
  let present = style;
  const put = (text) => text && found.push({ text: clean(text), classes: classes(present) });
  for (const match of line.matchAll(SEQUENCE)) {
    put(line.slice(place, match.index));
    place = match.index + match[0].length;
    if (match[2] === "m") present = changed(present, match[1]);
  }
  put(line.slice(place));
  return { pieces: found, style: present };
}

/** What a terminal shows of a line with carriage returns (progress bars): the last that was written. */
export function settled(line) {
  const kept = line.endsWith("\r") ? line.slice(0, -1) : line;
  return kept.slice(kept.lastIndexOf("\r") + 1);
}

function clean(text) {
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "�");
}

function classes(style) {
  return Object.entries(style).filter(([, value]) => value).map(([key, value]) => `ansi-${value === true ? key : `${key}-${value}`}`).join(" ");
}

function changed(style, text) {
  let next = { ...style };
  const codes = text === "" ? [0] : text.split(/[;:]/).map(Number);
  for (let n = 0; n < codes.length; n++) {
    const code = codes[n];
    if (code === 0) next = {};
    else if (STYLES[code]) next[STYLES[code]] = true;
    else if (OFF[code]) for (const name of OFF[code]) next[name] = false;
    else if (code === 38 || code === 48) n += codes[n + 1] === 5 ? palette(next, code, codes[n + 2]) : 4;
    else colour(next, code);
  }
  return next;
}

// Of the 256 colours those that have a name are shown; the others suit one background only.
function palette(style, code, number) {
  if (number < 16) style[code === 38 ? "fg" : "bg"] = String(number);
  return 2;
}

function colour(style, code) {
  if (code === 39) style.fg = false;
  else if (code === 49) style.bg = false;
  else if (code >= 30 && code <= 37) style.fg = String(code - 30);
  else if (code >= 90 && code <= 97) style.fg = String(code - 82);
  else if (code >= 40 && code <= 47) style.bg = String(code - 40);
  else if (code >= 100 && code <= 107) style.bg = String(code - 92);
}
