// What a guess is on: the slider's values, and the axis that holds guess and answer.
import { logTicks, ticks } from "shared/axis.js";
import { there } from "shared/there.js";

export const STEPS = 1000; // of the slider
const FROM_ZERO = 20; // ratio of guess and answer from which an open scale is logarithmic

/**
 * A value in few figures at a step of the slider.
 * @type {(step: number, low: number, high: number, isLog: boolean) => number}
 */
export function valueAt(step, low, high, isLog) {
  const share = step / STEPS;
  if (isLog) return Number((low * (high / low) ** share).toPrecision(2));
  const grain = 10 ** Math.floor(Math.log10((high - low) / 100));
  return Number((Math.round((low + (high - low) * share) / grain) * grain).toPrecision(12));
}

/**
 * The step of the slider that is nearest to a value.
 * @type {(value: number, low: number, high: number, isLog: boolean) => number}
 */
export function stepOf(value, low, high, isLog) {
  const share = isLog ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(STEPS * Math.min(1, Math.max(0, share)));
}

/**
 * An axis that holds the values: the slider's where there is one, widened where they lie outside.
 * @type {(values: number[], low: number | null, high: number | null, isLog: boolean) => { share: (value: number) => number, ticks: number[] }}
 */
export function axisOf(values, low, high, isLog) {
  const known = low === null ? values : [low, there(high), ...values];
  let [from, to] = [Math.min(...known), Math.max(...known)];
  const log = from > 0 && (isLog || (low === null && to / from >= FROM_ZERO));
  if (low === null && !log) [from, to] = [Math.min(0, 1.15 * from), Math.max(0, 1.15 * to)];
  if (low === null && log) [from, to] = [from / 2, to * 2];
  if (from === to) [from, to] = [from - 1, to + 1];
  /** @type {(value: number) => number} */
  const share = log ? (value) => Math.log(value / from) / Math.log(to / from) : (value) => (value - from) / (to - from);
  return { share, ticks: log ? thinned(logTicks(from, to)) : ticks(from, to, 4) };
}

/**
 * At most about six of them: a phone has no room for more.
 * @type {(values: number[]) => number[]}
 */
const thinned = (values) => values.filter((_, index) => index % Math.ceil(values.length / 6) === 0);
