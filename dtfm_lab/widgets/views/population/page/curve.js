// Best, median and bound over generations, on a logarithmic axis, with a playhead.
import { figures, seconds, ticks } from "shared/axis.js";
/** @import { Context, Spot, Theme } from "shared/types.d.ts" */
/** @import { Frame } from "../types.d.ts" */

const [LEFT, RIGHT, TOP, BOTTOM] = [58, 104, 10, 20];
const MARKS = [0, 1, 2, 5, 10, 20, 50, 100, 200, 400];
const LABEL_PX = 14;

/**
 * Draws the frames; returns `generationAt(x)`, or null where there is nothing to draw.
 * @type {(context: Context, wide: number, high: number, shown: { frames: Frame[], at: number, bound: number, planner: number }, theme: Theme) => ((px: number) => number) | null}
 */
export function paintCurve(context, wide, high, { frames, at, bound, planner }, theme) {
  context.clearRect(0, 0, wide, high);
  if (!frames.length) return null;
  const last = Math.max(1, frames.at(-1).generation);
  const right = wide - RIGHT,
    bottom = high - BOTTOM;
  /** @type {(generation: number) => number} */
  const x = (generation) => LEFT + (Math.log(generation + 1) / Math.log(last + 1)) * (right - LEFT);
  const values = frames.flatMap(({ best_s, median_s }) => [best_s, median_s]).concat([bound, planner].filter((value) => value > 0));
  const least = Math.min(...values),
    most = Math.max(...values),
    room = (most - least || most || 1) * 0.08;
  const [low, top] = [Math.max(0, least - room), most + room];
  /** @type {(value: number) => number} */
  const y = (value) => bottom - ((value - low) / (top - low)) * (bottom - TOP);
  context.font = theme.font;
  context.textBaseline = "middle";
  context.lineWidth = 1;
  for (const value of ticks(low, top, 4)) {
    context.strokeStyle = theme.softBorder;
    line(context, [
      [LEFT, y(value)],
      [right, y(value)],
    ]);
    context.fillStyle = theme.softText;
    context.textAlign = "right";
    // an axis stays in one unit: no minutes
    context.fillText(value >= 100 ? `${figures(value, 4)} s` : seconds(value), LEFT - 6, y(value));
  }
  context.textAlign = "center";
  let free = LEFT - 30;
  for (const mark of MARKS.filter((each) => each <= last)) {
    const words = mark ? String(mark) : "generation 0";
    const half = context.measureText(words).width / 2;
    const middle = Math.max(x(mark), mark ? 0 : LEFT - 20 + half);
    if (middle - half < free) continue;
    context.fillText(words, middle, high - BOTTOM / 2 + 2);
    free = middle + half + 14;
  }
  const best = steps(frames, "best_s", x, y, right),
    /** @type {Spot[]} */ median = frames.map(({ generation, median_s }) => [x(generation), y(median_s)]);
  context.fillStyle = theme.dark ? "rgb(255 255 255 / 9%)" : "rgb(0 0 0 / 7%)";
  context.beginPath();
  [...median, ...[...best].reverse()].forEach(([px, py], index) => (index ? context.lineTo(px, py) : context.moveTo(px, py)));
  context.fill();
  context.strokeStyle = theme.softText;
  line(context, median);
  if (bound > 0) {
    context.setLineDash([5, 4]);
    line(context, [
      [LEFT, y(bound)],
      [right, y(bound)],
    ]);
    context.setLineDash([]);
  }
  context.strokeStyle = theme.text;
  context.lineWidth = 2;
  line(context, best);
  const now = frames[at];
  context.lineWidth = 1.5;
  line(context, [
    [x(now.generation), TOP - 6],
    [x(now.generation), bottom + 3],
  ]);
  context.fillStyle = theme.text;
  context.beginPath();
  context.arc(x(now.generation), y(now.best_s), 4.5, 0, 2 * Math.PI);
  context.fill();
  endLabels(
    context,
    right + 8,
    bottom,
    [
      { value: frames.at(-1).best_s, text: `best ${seconds(frames.at(-1).best_s)}`, bold: true },
      { value: frames.at(-1).median_s, text: `median ${seconds(frames.at(-1).median_s)}` },
      ...(bound > 0 ? [{ value: bound, text: `bound ${seconds(bound)}` }] : []),
    ],
    y,
    theme,
  );
  return (px) => Math.round(Math.exp(((px - LEFT) / (right - LEFT)) * Math.log(last + 1)) - 1);
}

/** @type {(frames: Frame[], name: "best_s" | "median_s", x: (generation: number) => number, y: (value: number) => number, right: number) => Spot[]} */
function steps(frames, name, x, y, right) {
  /** @type {Spot[]} */
  const points = [];
  for (const frame of frames) {
    if (points.length) points.push([x(frame.generation), points.at(-1)[1]]);
    points.push([x(frame.generation), y(frame[name])]);
  }
  return [...points, [right, points.at(-1)[1]]];
}

/** @type {(context: Context, left: number, bottom: number, labels: { value: number, text: string, bold?: boolean }[], y: (value: number) => number, theme: Theme) => void} */
function endLabels(context, left, bottom, labels, y, theme) {
  const placed = labels.map((label) => ({ ...label, y: y(label.value) })).sort((one, other) => one.y - other.y);
  for (let at = 1; at < placed.length; at++) placed[at].y = Math.max(placed[at].y, placed[at - 1].y + LABEL_PX);
  for (let at = placed.length - 1, floor = bottom; at >= 0; at--, floor -= LABEL_PX) placed[at].y = Math.min(placed[at].y, floor);
  context.textAlign = "left";
  for (const { text, y: height, bold } of placed) {
    context.font = `${bold ? "650 " : ""}${theme.font}`;
    context.fillStyle = bold ? theme.text : theme.softText;
    context.fillText(text, left, height);
  }
}

/** @type {(context: Context, points: Spot[]) => void} */
function line(context, points) {
  context.beginPath();
  points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
