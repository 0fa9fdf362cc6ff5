// A list of which only the rows on the screen exist.

import { html, useEffect, useRef, useState } from "./html.js";

const SPARE = 8; // rows above and below

/** Which rows of a list are in sight: {first, last, ref, onScroll}. */
export function useWindow(count, rowHeight) {
  const ref = useRef(null);
  const [place, setPlace] = useState({ top: 0, height: 800 });
  const look = () => {
    const { scrollTop, clientHeight } = ref.current;
    setPlace((old) => (old.top === scrollTop && old.height === clientHeight ? old : { top: scrollTop, height: clientHeight }));
  };
  useEffect(() => {
    look();
    const observer = new ResizeObserver(look);
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.min(count, Math.floor(place.top / rowHeight)) - SPARE);
  const last = Math.min(count, Math.ceil((place.top + place.height) / rowHeight) + SPARE);
  return { first, last, ref, onScroll: look };
}

/** Empty space in place of rows that are out of sight. */
export function Space({ rows, rowHeight }) {
  return rows > 0 ? html`<div class="space" aria-hidden="true" style=${{ height: `${rows * rowHeight}px` }}></div>` : null;
}
