// The stretch of time that is on the screen, and how it is moved.  Times are microseconds of the wall clock.

import { nowUs } from "../format.js";

export const SHORTEST_US = 20;
export const LONGEST_US = 30 * 86_400e6;
//: Empty space at the right edge while the view follows, so that what happens now is not at the border.
const AHEAD = 0.02;

export class TimeWindow {
  constructor(spanUs) {
    this.follow = true;
    this.span = spanUs;
    this.end = nowUs();
  }

  get begin() {
    return this.end - this.span;
  }

  /** Keep up with the clock. */
  tick() {
    if (this.follow) this.end = nowUs() + this.span * AHEAD;
  }

  /** Move by a share of what is on the screen; to the left is the past. */
  pan(share) {
    this.follow = false;
    this.end += share * this.span;
    const latest = nowUs() + this.span * 0.5;
    if (this.end > latest) this.end = latest;
  }

  /** `factor` below 1 shows less time; what is at `place` (0: left edge, 1: right edge) stays there. */
  zoom(factor, place) {
    const span = Math.min(LONGEST_US, Math.max(SHORTEST_US, this.span * factor));
    const kept = this.follow ? this.end : this.begin + place * this.span + (1 - place) * span;
    this.span = span;
    this.end = kept;
    this.tick();
  }

  show(beginUs, endUs) {
    this.follow = false;
    this.span = Math.min(LONGEST_US, Math.max(SHORTEST_US, endUs - beginUs));
    this.end = (beginUs + endUs) / 2 + this.span / 2;
  }
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7,
  1.2e8, 3e8, 6e8, 9e8, 1.8e9, 3.6e9, 7.2e9, 1.08e10, 2.16e10, 4.32e10, 8.64e10, 1.728e11, 6.048e11];

/** The step between two marks of an axis, microseconds: the smallest that leaves a mark `room` pixels. */
export function stepFor(usPerPixel, room) {
  return STEPS.find((step) => step / usPerPixel >= room) ?? STEPS.at(-1);
}
