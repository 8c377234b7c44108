// What the chart of a run's losses draws.
import { extent, known } from "shared/chart.js";
import { alarm } from "shared/theme.js";
/** @import { Chart, Theme } from "shared/types.d.ts" */
/** @import { Shown } from "../types.d.ts" */

const FEW = 60; // points that get a dot each
const FIRST = 32; // iterations that a long run has room for at first; twice as many whenever it is full

/**
 * Losses are ink: a hue is for kinds of action and for stages.
 * @type {(shown: Shown, theme: Theme) => Chart}
 */
export function plotted({ training, heldOut, first, total, reference, marks, slim, unit }, theme) {
  const looked = heldOut.filter(([, loss]) => isFinite(loss));
  const level = reference === null ? [] : [reference];
  const [low, high] = extent([...training, ...looked.map(([, loss]) => loss), ...level], 0.06);
  const room = Math.max(FIRST, 2 ** Math.ceil(Math.log2(training.length)));
  const last = first + Math.max(1, Math.min(total, room), training.length - 1);
  const iterations = training.map((_, index) => first + index);
  /** @type {Chart["curves"]} */
  const curves = [
    { xs: iterations, lines: [{ ys: known(training), color: theme.text, width: 2, marked: training.length <= FEW ? iterations : iterations.slice(-1) }] },
  ];
  if (looked.length) {
    const done = looked.map(([at]) => at);
    curves.push({ xs: done, lines: [{ ys: looked.map(([, loss]) => loss), color: theme.softText, width: 1.5, dash: [2, 3], marked: done }] });
  }
  for (const value of level) curves.push({ xs: [first, last], lines: [{ ys: [value, value], color: theme.softText, width: 1, dash: [5, 4] }] });
  /** @type {(value: number, color: string, bold: boolean) => Chart["ends"][number]} */
  const end = (value, color, bold) => ({ value, text: value.toFixed(2), color, bold });
  /** @type {[number, string, boolean][]} */
  const ends = [
    [training.at(-1), theme.text, true],
    [looked.at(-1)?.[1], theme.softText, false],
    [level[0], theme.softText, false],
  ];
  return {
    x: { low: first, high: last, log: false, label: slim ? "" : "iterations done", whole: true, format: (value) => value.toLocaleString("en-US") },
    y: { low, high, label: slim ? "" : unit ? `loss (${unit})` : "loss" },
    curves,
    between: null,
    ends: ends.filter(([value]) => isFinite(value)).map((each) => end(...each)),
    marks: marks.map(({ at, text }) => ({ x: at, text, color: alarm(theme.dark) })),
  };
}
