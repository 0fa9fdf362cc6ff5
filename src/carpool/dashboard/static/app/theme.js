// Light or dark: as the system says, or as the user has chosen.

import { html, useEffect, useState } from "./html.js";

const KEY = "carpool-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };
const listeners = new Set();

export function theme() {
  return localStorage.getItem(KEY) ?? "auto";
}

export function apply() {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

/** `listener` is called when the colours have changed; returns what ends that. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);

/** A colour of the style sheet, as it is now. */
export function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function ThemeSwitch() {
  const [shown, setShown] = useState(theme());
  useEffect(() => onTheme(() => setShown(theme())), []);
  const change = () => {
    localStorage.setItem(KEY, NEXT[shown]);
    apply();
  };
  return html`<button class="quiet" onClick=${change} aria-label=${`Colours: ${NAMES[shown]}; change`}>
    Colours: ${NAMES[shown]}</button>`;
}
