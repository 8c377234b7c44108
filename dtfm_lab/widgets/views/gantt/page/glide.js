// Bars on their way from one prediction to the next: those of the same action, row by row.
import { there } from "shared/there.js";
/** @import { Bars } from "./bars.js" */
/** @import { Glide } from "../types.d.ts" */

const MOST = 60_000; // bars; more jump
export const GLIDE_MS = 450;
/** @type {(share: number) => number} */
export const eased = (share) => 1 - (1 - share) ** 3;

/**
 * `at(share)` gives the bars between `from` and `to`, the same object each time; null where they are too many.
 * @type {(from: Bars, to: Bars) => Glide | null}
 */
export function glide(from, to) {
  if (!from.count || !to.count || to.count > MOST) return null;
  const [starts, ends] = [to.start.slice(), to.end.slice()];
  for (let row = 0; row < to.nRows; row++) for (let kind = 0; kind < to.nKinds; kind++) match(from, to, row, kind, starts, ends);
  /** @type {Bars} */
  const between = Object.create(to);
  for (const name of /** @type {const} */ (["start", "end", "reach"])) between[name] = new Float32Array(to.count);
  const { start, end, reach, begins } = between;
  return {
    at(share) {
      for (let at = 0; at < to.count; at++) {
        start[at] = starts[at] + (to.start[at] - starts[at]) * share;
        end[at] = ends[at] + (to.end[at] - ends[at]) * share;
      }
      for (let strip = 0; strip + 1 < begins.length; strip++) {
        let latest = -Infinity;
        for (let at = begins[strip]; at < begins[strip + 1]; at++) reach[at] = latest = Math.max(latest, end[at]);
      }
      between.first = from.first + (to.first - from.first) * share;
      between.last = from.last + (to.last - from.last) * share;
      return between;
    },
  };
}

/**
 * Where the bars of a strip come from; those of a new action stay where they are.
 * @type {(from: Bars, to: Bars, row: number, kind: number, starts: Float32Array, ends: Float32Array) => void}
 */
function match(from, to, row, kind, starts, ends) {
  const [begin, stop] = to.strip(row, kind);
  const [first, last] = from.strip(row, kind);
  if (begin === stop || first === last) return;
  /** @type {(at: number, other: number) => boolean} */
  const isSame = (at, other) => from.microbatch[other] === to.microbatch[at] && from.stage[other] === to.stage[at];
  /** @type {Map<number, number[]> | null} */
  let waiting = null; // action -> its bars, made where the orders differ
  for (let at = begin; at < stop; at++) {
    let other = first + at - begin;
    if (waiting || other >= last || !isSame(at, other)) {
      waiting ??= byAction(from, first, last, Math.min(other, last));
      other = waiting.get(to.stage[at] * 2 ** 24 + to.microbatch[at])?.shift() ?? -1;
      if (other < 0) continue;
    }
    starts[at] = from.start[other];
    ends[at] = from.end[other];
  }
}

/** @type {(bars: Bars, first: number, last: number, from: number) => Map<number, number[]>} */
function byAction(bars, first, last, from) {
  /** @type {Map<number, number[]>} */
  const found = new Map();
  for (let at = from; at < last; at++) {
    const key = bars.stage[at] * 2 ** 24 + bars.microbatch[at];
    if (found.has(key)) there(found.get(key)).push(at);
    else found.set(key, [at]);
  }
  return found;
}
