// What the chart of a search draws: best, median and bound of each series, as steps.
import { compact, figures } from "shared/axis.js";
import { extent, known } from "shared/chart.js";
import { bestBounded, boundColor, seriesColor } from "./curve.js";
/** @import { Chart, ChartLine, Theme } from "shared/types.d.ts" */
/** @import { Curve } from "./curve.js" */
/** @import { Across, Axis, Column, Curves, Words } from "../types.d.ts" */

const MOST_MARKS = 40; // improvements that get a dot
const STEEP = 50; // ratio of highest to lowest from which the axis is logarithmic

/**
 * `axis`: what is across, whether its scale is logarithmic, and its label.
 * @type {(curves: Curves, axis: Axis, theme: Theme) => Chart}
 */
export function plotted(curves, { against, logarithmic, label, noun, unit, words }, theme) {
  const all = [...curves.values()];
  const levels = all.flatMap((curve) => /** @type {Column[]} */ (["best", "bound", "median"]).flatMap((name) => Array.from(curve.column(name))));
  const [least, most] = extent(
    levels.filter((value) => value > 0),
    0,
  );
  const steep = least > 0 && most > STEEP * least; // one planner may need a thousand times as long as another
  const [low, high] = steep ? [least / 1.3, most * 1.3] : extent(levels, 0.08);
  const counted = against === "evaluations";
  const first = Math.min(...all.map((curve) => curve.column(against)[0]));
  const last = Math.max(...all.map((curve) => curve.last(against)));
  const room = counted ? 1 : 1e-3;
  const from = logarithmic ? Math.max(room, first) : 0;
  const to = logarithmic ? Math.max(last * 1.12, from * 2) : last + Math.max(room, last * (counted ? 0.05 : 0.03));
  const bounded = bestBounded(curves);
  /** @type {Chart["curves"]} */
  const drawn = all.map((curve, index) => ({
    xs: curve.column(against).map((value) => (logarithmic ? Math.max(value, from) : value)),
    lines: [
      { ys: known(curve.column("median")), color: seriesColor(index, theme), width: 1.25, alpha: 0.85, stepped: true },
      { ys: known(curve.column("best")), color: seriesColor(index, theme), width: 2, stepped: true, marked: improvements(curve, against) },
      ...(curve === bounded ? [{ ys: known(curve.column("bound")), color: boundColor(curves, theme), width: 1.5, dash: [6, 5], stepped: true }] : []),
    ],
  }));
  const held = all.filter((curve) => curve.last(against) < last); // a search that has ended keeps what it found
  drawn.push(
    ...held.map((curve) => ({
      xs: [curve.last(against), last],
      lines: [{ ys: Array(2).fill(curve.last("best")), color: seriesColor(all.indexOf(curve), theme), width: 2, alpha: 0.35 }],
    })),
  );
  const inMs = unit === "s" && high < 1;
  return {
    x: { low: from, high: to, log: logarithmic, label, whole: counted, format: counted ? compact : (value) => figures(value) },
    y: { low: Math.max(0, low), high, log: steep, label: `${noun} (${inMs ? "ms" : unit})`, times: inMs ? 1000 : 1 },
    curves: drawn,
    between: bounded && all.length === 1 ? [1, 2] : null,
    ends: ends(curves, bounded, words, theme),
  };
}

/**
 * Where on the axis a search found improvements, unless there are too many to mark.
 * @type {(curve: Curve, against: Across) => number[]}
 */
function improvements(curve, against) {
  const [across, best] = [curve.column(against), curve.column("best")];
  const found = across.filter((_, row) => row === 0 || best[row] < best[row - 1]);
  return found.length > MOST_MARKS ? [] : found;
}

/** @type {(curves: Curves, bounded: Curve | null, words: Words, theme: Theme) => Chart["ends"]} */
function ends(curves, bounded, words, theme) {
  const all = [...curves.values()];
  /** @type {(curve: Curve, name: Column, color: string, bold: boolean) => Chart["ends"][number]} */
  const end = (curve, name, color, bold) => ({ value: curve.last(name), text: words(curve.last(name)), color, bold });
  const found = all.map((curve, index) => end(curve, "best", seriesColor(index, theme), true));
  if (bounded) found.push(end(bounded, "bound", boundColor(curves, theme), false));
  const [only] = all;
  if (all.length === 1 && only.has("median") && only.last("median") !== only.last("best")) found.push(end(only, "median", seriesColor(0, theme), false));
  return found;
}
