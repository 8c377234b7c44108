// Axes and step lines of the convergence curve, on a 2D context.
import { compact, figures, logTicks, seconds, tickLabel, ticks } from "shared/axis.js";
import { bestBounded, boundColor, seriesColor } from "./curve.js";

const MOST_MARKS = 40; // improvements; of more, the line itself says enough

export const plotArea = (width, height) => ({ left: 64, top: 14, right: width - 84, bottom: height - 38 });

/** `axis`: what is across, whether its scale is logarithmic, and its label. */
export function paintPlot(context, area, curves, axis, theme) {
  const view = scales(area, [...curves.values()], axis);
  paintAxes(context, area, view, theme);
  context.save();
  context.beginPath();
  context.rect(area.left - 4, area.top - 4, area.right - area.left + 4, area.bottom - area.top + 8);
  context.clip();
  const bounded = bestBounded(curves);
  if (bounded) paintBound(context, bounded, curves.size === 1, view, boundColor(curves, theme));
  let index = 0;
  for (const curve of curves.values()) paintCurve(context, curve, view, seriesColor(index++, theme));
  context.restore();
  paintLastValues(context, area, curves, view, theme);
  return {
    top: area.top,
    contains: (x) => x >= area.left && x <= area.right,
    valueAt: view.valueAt,
    cursor(x) {
      context.strokeStyle = theme.softText;
      context.lineWidth = 1;
      line(context, x, area.top, x, area.bottom);
    },
  };
}

function scales(area, curves, { against, logarithmic, label }) {
  let [low, high] = [Infinity, -Infinity];
  for (const curve of curves)
    for (const name of ["best", "bound", "median"])
      for (const value of curve.column(name))
        if (isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) [low, high] = [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [Math.max(0, low - margin), high + margin];

  const counted = against === "evaluations";
  const first = Math.min(...curves.map((curve) => curve.column(against)[0]));
  const last = Math.max(...curves.map((curve) => curve.last(against)));
  const from = logarithmic ? Math.max(counted ? 1 : 1e-3, first) : 0;
  const room = counted ? Math.max(1, last * 0.05) : Math.max(1e-3, last * 0.03); // to see the end
  const to = logarithmic ? Math.max(last * 1.12, from * 2) : last + room;
  const across = area.right - area.left;
  const warp = logarithmic ? (value) => Math.log(Math.max(value, from)) : (value) => value;
  const unwarp = logarithmic ? Math.exp : (value) => value;
  return {
    low, high, from, to, end: last, logarithmic, against, label, counted,
    x: (value) => area.left + ((warp(value) - warp(from)) / (warp(to) - warp(from))) * across,
    y: (cost) => area.bottom - ((cost - low) / (high - low)) * (area.bottom - area.top),
    valueAt: (x) => unwarp(warp(from) + ((x - area.left) / across) * (warp(to) - warp(from))),
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
  for (const mark of marks.filter((value) => !view.counted || Number.isInteger(value))) {
    const x = Math.round(view.x(mark)) + 0.5;
    line(context, x, area.bottom, x, area.bottom + 4);
    context.fillText(view.counted ? compact(mark) : figures(mark), x, area.bottom + 13);
  }
  context.fillText(view.label, (area.left + area.right) / 2, area.bottom + 29);
  context.save();
  context.translate(11, (area.top + area.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(`cost (${unit.name})`, 0, 0);
  context.restore();
}

/** Dashed; one search alone has the gap above it shaded. */
function paintBound(context, curve, shaded, view, color) {
  const bound = steps(curve, "bound", view);
  if (shaded) {
    context.fillStyle = color;
    context.globalAlpha = 0.12;
    fillBetween(context, steps(curve, "best", view), bound);
    context.globalAlpha = 1;
  }
  context.strokeStyle = color;
  context.lineWidth = 1.5;
  context.setLineDash([6, 5]);
  stroke(context, shaded ? bound : untilTheEnd(bound, view));
  context.setLineDash([]);
}

function paintCurve(context, curve, view, color) {
  context.strokeStyle = color;
  context.globalAlpha = 0.85;
  context.lineWidth = 1.25;
  stroke(context, steps(curve, "median", view));
  context.globalAlpha = 1;
  context.lineWidth = 2;
  const best = steps(curve, "best", view);
  stroke(context, best);
  context.globalAlpha = 0.35; // who has ended keeps what it found
  stroke(context, untilTheEnd(best.slice(-1), view));
  context.globalAlpha = 1;
  paintImprovements(context, curve, view, color);
}

function paintImprovements(context, curve, view, color) {
  const best = curve.column("best");
  const improved = [];
  for (let row = 0; row < best.length; row++) if (row === 0 || best[row] < best[row - 1]) improved.push(row);
  if (improved.length > MOST_MARKS) return;
  context.fillStyle = color;
  for (const row of improved) {
    context.beginPath();
    context.arc(view.x(curve.column(view.against)[row]), view.y(best[row]), 3, 0, 2 * Math.PI);
    context.fill();
  }
}

/** Corners of a staircase: a value holds until the next row, and nothing is known after the last. */
function steps(curve, name, view) {
  const [across, values] = [curve.column(view.against), curve.column(name)];
  const points = [];
  for (let row = 0; row < curve.length; row++) {
    if (!isFinite(values[row])) continue;
    const x = view.x(across[row]);
    if (points.length) points.push([x, points[points.length - 1][1]]);
    points.push([x, view.y(values[row])]);
  }
  return points;
}

/** The same, its last value held as long as anybody searches. */
const untilTheEnd = (points, view) => [...points, ...points.slice(-1).map(([, y]) => [view.x(view.end), y])];

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

/** Best, bound and median at the right edge, pushed apart where they would cover each other. */
function paintLastValues(context, area, curves, view, theme) {
  const labels = [];
  const all = [...curves.values()];
  let index = 0;
  for (const curve of all)
    labels.push({ text: seconds(curve.last("best")), y: view.y(curve.last("best")), color: seriesColor(index++, theme), bold: true });
  const bounded = bestBounded(curves);
  if (bounded) {
    const bound = bounded.last("bound");
    labels.push({ text: seconds(bound), y: view.y(bound), color: boundColor(curves, theme), bold: false });
  }
  if (curves.size === 1 && all[0].has("median") && all[0].last("median") !== all[0].last("best"))
    labels.push({ text: seconds(all[0].last("median")), y: view.y(all[0].last("median")), color: seriesColor(0, theme), bold: false });
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
