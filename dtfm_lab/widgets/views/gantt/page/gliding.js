// A prediction that replaces another: its bars glide from the old places to the new ones, and the time axis with them.
import { isStill } from "shared/bus.js";
import { eased, glide, GLIDE_MS } from "./glide.js";

/** `begin(from, to, ends)` starts a glide of bars and of what is in sight; `stepped()` asks for a repaint. */
export function gliding(stepped, cleanUp) {
  let now = null; // {bars, from, to, began}
  let pending = 0;
  cleanUp.add(() => cancelAnimationFrame(pending));

  function begin(from, to, spanFrom, spanTo) {
    now = null;
    cancelAnimationFrame(pending);
    if (isStill() || document.hidden) return;
    const bars = glide(from, to);
    now = { bars, spanFrom, spanTo, began: performance.now(), share: 0 };
    pending = requestAnimationFrame(step);
  }

  function step(time) {
    const done = Math.min(1, Math.max(0, (time - now.began) / GLIDE_MS));
    now.share = eased(done);
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
    span: (last) => (now ? now.spanFrom.map((from, at) => from + (now.spanTo[at] - from) * now.share) : last),
  };
}
