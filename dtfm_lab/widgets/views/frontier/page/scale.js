// An axis of the frontier.
import { logTicks, ticks } from "shared/axis.js";

const STEEP = 6; // ratio of the largest to the smallest from which an axis is logarithmic
const LEAST_ROOM = 0.1; // share of the largest value beside the points: with less, marks of three figures would read alike

/**
 * Positions of values between two pixels, on a logarithmic scale if they differ much.
 * @type {(values: number[], from: number, to: number) => { at: (value: number) => number, marks: (count: number) => number[] }}
 */
export function scale(values, from, to) {
  const known = values.filter((value) => isFinite(value));
  const least = Math.min(...known),
    most = Math.max(...known);
  const log = least > 0 && most / least > STEEP;
  const room = Math.max((most - least) * 0.08, most * LEAST_ROOM) || 0.08;
  const [bottom, top] = log ? [least / 1.15, most * 1.15] : [Math.max(0, least - room), most + room];
  /** @type {(value: number) => number} */
  const of = log ? Math.log : (value) => value;
  return {
    at: (value) => from + ((of(value) - of(bottom)) / (of(top) - of(bottom) || 1)) * (to - from),
    marks: (count) => (log ? logTicks(bottom, top) : ticks(bottom, top, count)),
  };
}
