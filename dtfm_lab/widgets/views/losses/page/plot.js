// What the chart of a run's losses draws.
import { extent, known } from "shared/chart.js";
import { BLUE, isDark, ORANGE, SKY, VERMILLION } from "shared/theme.js";

const FEW = 60; // points that get a dot each

export function plotted({ training, heldOut, first, total, reference }, theme) {
  const dark = isDark(theme.surface);
  const [blue, red] = dark ? [SKY, ORANGE] : [BLUE, VERMILLION];
  const looked = heldOut.filter(([, loss]) => isFinite(loss));
  const level = reference === null ? [] : [reference];
  const [low, high] = extent([...training, ...looked.map(([, loss]) => loss), ...level], 0.06);
  const last = first + Math.max(1, total, training.length - 1);
  const iterations = training.map((_, index) => first + index);
  const curves = [{ xs: iterations, lines: [{ ys: known(training), color: blue, width: 2, marked: training.length <= FEW ? iterations : iterations.slice(-1) }] }];
  if (looked.length) {
    const done = looked.map(([at]) => at);
    curves.push({ xs: done, lines: [{ ys: looked.map(([, loss]) => loss), color: red, width: 2, marked: done }] });
  }
  for (const value of level) curves.push({ xs: [first, last], lines: [{ ys: [value, value], color: theme.softText, width: 1, dash: [5, 4] }] });
  const end = (value, color) => ({ value, text: value.toFixed(3), color, bold: false });
  const ends = [[training.at(-1), blue], [looked.at(-1)?.[1], red], [level[0], theme.softText]];
  return {
    x: { low: first, high: last, log: false, label: "iterations done", whole: true, format: (value) => value.toLocaleString("en-US") },
    y: { low, high, label: "loss (nats per token)" },
    curves,
    between: null,
    ends: ends.filter(([value]) => isFinite(value)).map(([value, color]) => end(value, color)),
  };
}
