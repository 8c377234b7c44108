// A pulse on the picture: three beats that say "here", then nothing.
import { isStill } from "./bus.js";

const BEAT_MS = 900;
const BEATS = 3;

/**
 * How far a beat has come, 0 to 1, and how strong its ring is, 1 to 0; null before and after the pulse.
 * @type {(passedMs: number) => { grown: number, strength: number } | null}
 */
export function beatAt(passedMs) {
  if (passedMs < 0 || passedMs >= BEATS * BEAT_MS) return null;
  const grown = (passedMs % BEAT_MS) / BEAT_MS;
  return { grown, strength: 1 - grown };
}

/**
 * The pulse of one view: `begin` starts it, `now` is where it is. With reduced motion there is none.
 * @type {(clock?: () => number, still?: () => boolean) => { begin: () => void, now: () => { grown: number, strength: number } | null, readonly on: boolean }}
 */
export function pulsing(clock = () => performance.now(), still = isStill) {
  let began = -Infinity;
  const now = () => beatAt(clock() - began);
  return {
    begin() {
      if (!still()) began = clock();
    },
    now,
    get on() {
      return now() !== null;
    },
  };
}
