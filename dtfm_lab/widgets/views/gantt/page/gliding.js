// A prediction that replaces another: its bars glide from the old places to the new ones, and the time axis with them.
import { isStill } from "shared/bus.js";
import { eased, glide, GLIDE_MS } from "./glide.js";
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Bars } from "./bars.js" */
/** @import { Glide } from "../types.d.ts" */

/**
 * `begin(from, to, ends)` starts a glide of bars and of what is in sight; `stepped()` asks for a repaint.
 * @type {(stepped: () => void, cleanUp: CleanUps) => { begin: (from: Bars, to: Bars, spanFrom: number[], spanTo: number[]) => void, stop: () => void, isOn: () => boolean, bars: (last: Bars) => Bars, span: (last: number[]) => number[] }}
 */
export function gliding(stepped, cleanUp) {
  let now = /** @type {{ bars: Glide | null, spanFrom: number[], spanTo: number[], began: number, share: number } | null} */ (null); // {bars, from, to, began}
  let pending = 0;
  cleanUp.add(() => cancelAnimationFrame(pending));

  /** @type {(from: Bars, to: Bars, spanFrom: number[], spanTo: number[]) => void} */
  function begin(from, to, spanFrom, spanTo) {
    now = null;
    cancelAnimationFrame(pending);
    if (isStill() || document.hidden) return;
    const bars = glide(from, to);
    now = { bars, spanFrom, spanTo, began: performance.now(), share: 0 };
    pending = requestAnimationFrame(step);
  }

  /** @type {(time: number) => void} */
  function step(time) {
    const one = there(now);
    const done = Math.min(1, Math.max(0, (time - one.began) / GLIDE_MS));
    one.share = eased(done);
    if (done >= 1) now = null;
    else pending = requestAnimationFrame(step);
    stepped();
  }

  return {
    begin,
    stop() {
      now = null;
      cancelAnimationFrame(pending);
    },
    isOn: () => now !== null,
    bars: (last) => now?.bars?.at(now.share) ?? last,
    span: (last) => {
      const one = now;
      return one ? one.spanFrom.map((from, at) => from + (one.spanTo[at] - from) * one.share) : last;
    },
  };
}
