// Mouse, touch and keys of a timeline.

const WHEEL = 0.0022; // of a zoom, per pixel of the wheel
const CLICK = 4; // pixels: what moves less is a click
const KEYS = {
  ArrowLeft: (view) => view.window.pan(-0.1),
  ArrowRight: (view) => view.window.pan(0.1),
  PageUp: (view) => view.window.pan(-0.9),
  PageDown: (view) => view.window.pan(0.9),
  "+": (view) => view.window.zoom(0.5, 0.5),
  "=": (view) => view.window.zoom(0.5, 0.5),
  "-": (view) => view.window.zoom(2, 0.5),
  f: (view) => ((view.window.follow = !view.window.follow)),
  "[": (view) => view.step(-1),
  "]": (view) => view.step(1),
  ArrowUp: (view) => view.stepRow(-1),
  ArrowDown: (view) => view.stepRow(1),
  Escape: (view) => view.select(null),
};

/** Make `view` (a TimelineCanvas) obey; returns what ends that. */
export function listen(view) {
  const stop = new AbortController();
  const { canvas } = view;
  const on = (name, act, more) => canvas.addEventListener(name, act, { signal: stop.signal, ...more });
  const pointers = new Map();
  let moved = 0;

  on("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      view.window.pan((event.deltaX || event.deltaY) / canvas.clientWidth);
    } else {
      const speed = event.ctrlKey ? 4 : 1; // a pinch on a touchpad comes as small steps
      view.window.zoom(Math.exp(event.deltaY * WHEEL * speed), view.place(event.offsetX));
    }
    view.request();
  }, { passive: false });

  on("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    if (pointers.size === 1) moved = 0;
  });

  on("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    if (pointers.size === 2) pinch(view, pointers, before, event);
    else drag(before, event);
    pointers.set(event.pointerId, event);
  });

  const drag = (before, event) => {
    moved += Math.abs(event.offsetX - before.offsetX) + Math.abs(event.offsetY - before.offsetY);
    if (moved <= CLICK) return;
    view.window.pan((before.offsetX - event.offsetX) / canvas.clientWidth);
    view.request();
  };

  on("pointerup", (event) => {
    if (pointers.size === 1 && moved <= CLICK) view.pick(event.offsetX, event.offsetY);
    pointers.delete(event.pointerId);
  });
  on("pointercancel", (event) => pointers.delete(event.pointerId));

  on("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(view);
    view.request();
  });
  return () => stop.abort();
}

function pinch(view, pointers, before, event) {
  const other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
  const distance = (one) => Math.max(8, Math.abs(one.offsetX - other.offsetX));
  view.window.zoom(distance(before) / distance(event), view.place((event.offsetX + other.offsetX) / 2));
  view.request();
}
