// Axes and step lines of the convergence curve, on a 2D context.
import { compact, logTicks, seconds, tickLabel, ticks } from "../shared/axis.js";
import { seriesColor } from "./curve.js";

const MOST_MARKS = 40; // improvements; of more, the line itself says enough

export const plotArea = (width, height) => ({ left: 64, top: 14, right: width - 84, bottom: height - 38 });

export function paintPlot(context, area, curves, logarithmic, theme) {
  const view = scales(area, [...curves.values()], logarithmic);
  paintAxes(context, area, view, theme);
  context.save();
  context.beginPath();
  context.rect(area.left - 4, area.top - 4, area.right - area.left + 4, area.bottom - area.top + 8);
  context.clip();
  let index = 0;
  for (const curve of curves.values()) paintCurve(context, curve, view, seriesColor(index++, theme));
  context.restore();
  paintLastValues(context, area, curves, view, theme);
  return {
    top: area.top,
    contains: (x) => x >= area.left && x <= area.right,
    evaluationsAt: view.evaluationsAt,
    cursor(x) {
      context.strokeStyle = theme.softText;
      context.lineWidth = 1;
      line(context, x, area.top, x, area.bottom);
    },
  };
}

function scales(area, curves, logarithmic) {
  const finite = curves.flatMap((curve) => [...curve.best, ...curve.bound].filter(isFinite));
  let [low, high] = [Math.min(...finite), Math.max(...finite)];
  if (!finite.length) [low, high] = [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [Math.max(0, low - margin), high + margin];

  const first = Math.min(...curves.map((curve) => curve.evaluations[0]));
  const last = Math.max(...curves.map((curve) => curve.lastEvaluations));
  const from = logarithmic ? Math.max(1, first) : Math.min(0, first);
  const to = logarithmic ? Math.max(last * 1.12, from + 1) : last + Math.max(1, last * 0.05); // room to see the end
  const across = area.right - area.left;
  const warp = logarithmic ? (value) => Math.log(Math.max(value, from)) : (value) => value;
  const unwarp = logarithmic ? Math.exp : (value) => value;
  return {
    low, high, from, to, logarithmic,
    x: (evaluations) => area.left + ((warp(evaluations) - warp(from)) / (warp(to) - warp(from))) * across,
    y: (cost) => area.bottom - ((cost - low) / (high - low)) * (area.bottom - area.top),
    evaluationsAt: (x) => unwarp(warp(from) + ((x - area.left) / across) * (warp(to) - warp(from))),
  };
}

function paintAxes(context, area, view, theme) {
  context.font = theme.font;
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const unit = view.high < 1 ? { name: "ms", perSecond: 1000 } : { name: "s", perSecond: 1 };
  const costs = ticks(view.low * unit.perSecond, view.high * unit.perSecond, (area.bottom - area.top) / 36);
  for (const cost of costs) {
    const y = Math.round(view.y(cost / unit.perSecond)) + 0.5;
    context.strokeStyle = theme.softBorder;
    line(context, area.left, y, area.right, y);
    context.fillStyle = theme.softText;
    context.fillText(tickLabel(cost, costs[1] - costs[0]), area.left - 7, y);
  }
  context.strokeStyle = theme.border;
  line(context, area.left, area.bottom + 0.5, area.right, area.bottom + 0.5);

  context.textAlign = "center";
  const marks = view.logarithmic ? logTicks(view.from, view.to) : ticks(view.from, view.to, (area.right - area.left) / 90);
  for (const mark of marks.filter((value) => Number.isInteger(value))) {
    const x = Math.round(view.x(mark)) + 0.5;
    line(context, x, area.bottom, x, area.bottom + 4);
    context.fillText(compact(mark), x, area.bottom + 13);
  }
  context.fillText("placements priced", (area.left + area.right) / 2, area.bottom + 29);
  context.save();
  context.translate(11, (area.top + area.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(`cost (${unit.name})`, 0, 0);
  context.restore();
}

function paintCurve(context, curve, view, color) {
  const best = steps(curve, curve.best, view);
  const bound = steps(curve, curve.bound, view);
  if (bound.length) {
    context.fillStyle = color;
    context.globalAlpha = 0.12;
    fillBetween(context, best, bound);
    context.globalAlpha = 1;
  }
  context.strokeStyle = color;
  context.lineWidth = 2;
  stroke(context, best);
  context.lineWidth = 1.5;
  context.setLineDash([6, 5]);
  stroke(context, bound);
  context.setLineDash([]);
  paintImprovements(context, curve, view, color);
}

function paintImprovements(context, curve, view, color) {
  const improved = curve.best.map((_, row) => row).filter((row) => row === 0 || curve.best[row] < curve.best[row - 1]);
  if (improved.length > MOST_MARKS) return;
  context.fillStyle = color;
  for (const row of improved) {
    context.beginPath();
    context.arc(view.x(curve.evaluations[row]), view.y(curve.best[row]), 3.5, 0, 2 * Math.PI);
    context.fill();
  }
}

/** Corners of a staircase: a value holds until the next row, and nothing is known after the last. */
function steps(curve, values, view) {
  const points = [];
  for (let row = 0; row < curve.length; row++) {
    if (!isFinite(values[row])) continue;
    const x = view.x(curve.evaluations[row]);
    if (points.length) points.push([x, points[points.length - 1][1]]);
    points.push([x, view.y(values[row])]);
  }
  return points;
}

function fillBetween(context, upper, lower) {
  const start = lower[0][0]; // no gap to shade before there is a bound
  context.beginPath();
  for (const [x, y] of upper) context.lineTo(Math.max(start, x), y);
  for (const [x, y] of [...lower].reverse()) context.lineTo(x, y);
  context.fill();
}

function stroke(context, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

/** Best and bound at the right edge, pushed apart where they would cover each other. */
function paintLastValues(context, area, curves, view, theme) {
  const labels = [];
  let index = 0;
  for (const curve of curves.values()) {
    const color = seriesColor(index++, theme);
    labels.push({ text: seconds(curve.lastBest), y: view.y(curve.lastBest), color, bold: true });
    const bound = curve.bound[curve.length - 1];
    if (isFinite(bound)) labels.push({ text: seconds(bound), y: view.y(bound), color, bold: false });
  }
  labels.sort((one, other) => one.y - other.y);
  for (let at = 1; at < labels.length; at++) labels[at].y = Math.max(labels[at].y, labels[at - 1].y + 15);
  for (let at = labels.length - 1, floor = area.bottom; at >= 0; at--, floor -= 15)
    labels[at].y = Math.min(labels[at].y, floor);
  context.textAlign = "left";
  for (const { text, y, color, bold } of labels) {
    context.fillStyle = color;
    context.beginPath();
    context.arc(area.right + 6, y, bold ? 3 : 2, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = bold ? theme.text : theme.softText;
    context.font = bold ? `600 ${theme.font}` : theme.font;
    context.fillText(text, area.right + 13, y);
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
