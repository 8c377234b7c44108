// Curves below the rows, on the same time axis: how far behind the lower bars are, and memory.
import { figures } from "shared/axis.js";
import { alarm } from "shared/theme.js";
import { firstAtLeast } from "./bars.js";
import { fitted } from "./paint.js";

const STEPS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/** "12.3 GiB" */
export function bytes(value) {
  let [size, step] = [value, 0];
  while (size >= 1024 && step < STEPS.length - 1) { size /= 1024; step++; }
  return `${figures(size)} ${STEPS[step]}`;
}

/** "+0.4 s", "−12 ms": how much later, in the unit of the axis. */
export const signed = (seconds, unit) =>
  `${seconds < 0 ? "\u2212" : "+"}${figures(Math.abs(seconds) * unit.perSecond)} ${unit.name}`;

function frameOf(context, place, number, labels, theme) {
  const [top, bottom] = place.strip(number);
  context.strokeStyle = theme.softBorder;
  context.lineWidth = 1;
  context.strokeRect(place.left - 0.5, top - 0.5, place.right - place.left + 1, bottom - top + 1);
  context.textAlign = "right";
  context.textBaseline = "middle";
  labels.forEach((text, line) => {
    context.fillStyle = line ? theme.softText : theme.text;
    context.fillText(fitted(context, text, place.left - 12), place.left - 7, top + 10 + line * 17);
  });
  return [top, bottom];
}

function inside(context, place, top, bottom, work) {
  context.save();
  context.beginPath();
  context.rect(place.left, top, place.right - place.left, bottom - top);
  context.clip();
  work();
  context.restore();
}

/** What one device holds: its curve filled, the other trace's dashed, its limit across. */
export function paintMemory(context, place, number, memory, theme) {
  const { time, held, otherTime, otherHeld, limit, device } = memory;
  const most = Math.max(...held, ...otherHeld, 0);
  const showsLimit = limit > 0 && limit < 3 * most; // further up it would press the curve flat
  const top = 1.12 * Math.max(most, showsLimit ? limit : 0) || 1;
  const labels = ["memory", device, `max ${bytes(Math.max(...held, 0))}`];
  const [above, below] = frameOf(context, place, number, labels, theme);
  const y = (value) => below - (value / top) * (below - above);
  const steps = (times, values) => {
    context.beginPath();
    const first = Math.max(0, firstAtLeast(times, place.from) - 1);
    context.moveTo(place.x(times[first] ?? 0), y(values[first] ?? 0));
    for (let at = first + 1; at < times.length; at++) {
      const x = place.x(times[at]);
      context.lineTo(x, y(values[at - 1]));
      context.lineTo(x, y(values[at]));
      if (times[at] > place.to) return;
    }
    context.lineTo(place.right + 2, y(values[values.length - 1] ?? 0)); // nothing changes any more
  };
  inside(context, place, above, below, () => {
    if (time.length) {
      steps(time, held);
      context.strokeStyle = theme.softText;
      context.lineWidth = 1.5;
      context.stroke();
      context.lineTo(place.right + 2, below + 2);
      context.lineTo(place.left - 2, below + 2);
      context.fillStyle = theme.softText;
      context.globalAlpha = 0.18;
      context.fill();
      context.globalAlpha = 1;
    }
    if (otherTime.length) {
      steps(otherTime, otherHeld);
      context.strokeStyle = theme.text;
      context.lineWidth = 1.75;
      context.setLineDash([5, 3]);
      context.stroke();
      context.setLineDash([]);
    }
    if (showsLimit) {
      context.strokeStyle = alarm(theme.dark);
      context.lineWidth = 1.5;
      context.setLineDash([7, 4]);
      context.beginPath();
      context.moveTo(place.left, y(limit));
      context.lineTo(place.right, y(limit));
      context.stroke();
      context.setLineDash([]);
    }
  });
  if (limit > 0) {
    const text = showsLimit ? `limit ${bytes(limit)}` : `limit ${bytes(limit)}, far above`;
    plate(context, text, place.right - 4, showsLimit ? Math.max(above + 8, y(limit) + 9) : above + 9, theme);
  }
}

/** Between the first and the last row: how much later than above it, the lower bars end as time goes on. */
export function paintDrift(context, place, number, bars, row, most, unit, words, theme) {
  const [above, below] = frameOf(context, place, number, ["difference", words, `\u00b1 ${figures(most * unit.perSecond)} ${unit.name}`], theme);
  const middle = (above + below) / 2;
  const y = (seconds) => middle - (seconds / (most || 1)) * (below - above - 6) / 2;
  const width = Math.max(1, Math.ceil(place.right - place.left));
  const [low, high] = [new Float32Array(width).fill(Infinity), new Float32Array(width).fill(-Infinity)];
  const { end, late } = bars;
  for (let at = 0; at < bars.count; at++) {
    if (end[at] < place.from || end[at] > place.to || late[at] !== late[at]) continue;
    const x = Math.min(width - 1, Math.floor((end[at] - place.from) * place.scale));
    if (late[at] < low[x]) low[x] = late[at];
    if (late[at] > high[x]) high[x] = late[at];
  }
  const reached = [];
  for (let x = 0; x < width; x++) if (low[x] <= high[x]) reached.push(x);
  inside(context, place, above, below, () => {
    context.beginPath();
    for (const x of reached) context.lineTo(place.left + x + 0.5, y(Math.max(0, high[x])) - 0.5);
    for (const x of reached.slice().reverse()) context.lineTo(place.left + x + 0.5, y(Math.min(0, low[x])) + 0.5);
    context.closePath();
    for (const [color, from, to] of [[alarm(theme.dark), above, middle], [theme.softText, middle, below]]) {
      context.save();
      context.clip();
      context.fillStyle = color;
      context.globalAlpha = 0.45;
      context.fillRect(place.left, from, place.right - place.left, to - from);
      context.restore();
    }
    context.strokeStyle = theme.softText;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(place.left, middle);
    context.lineTo(place.right, middle);
    context.stroke();
    if (row >= 0) driftOf(context, place, bars, row, y, theme);
  });
  for (const [text, at] of [["later", above + 9], ["earlier", below - 9]])
    plate(context, text, place.left + 6 + context.measureText(text).width, at, theme);
}

/** The line of one row, from bar to bar in order of their ends. */
function driftOf(context, place, bars, row, y, theme) {
  const points = [];
  for (let kind = 0; kind < bars.nKinds; kind++) {
    const [begin, stop] = bars.strip(row, kind);
    for (let at = begin; at < stop; at++) if (bars.late[at] === bars.late[at]) points.push(at);
  }
  points.sort((one, other) => bars.end[one] - bars.end[other]);
  context.strokeStyle = theme.text;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const at of points) context.lineTo(place.x(bars.end[at]), y(bars.late[at]));
  context.stroke();
}

function plate(context, text, right, y, theme) {
  const width = context.measureText(text).width;
  context.fillStyle = theme.surface;
  context.globalAlpha = 0.8;
  context.fillRect(right - width - 3, y - 7, width + 6, 14);
  context.globalAlpha = 1;
  context.fillStyle = theme.softText;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(text, right, y + 0.5);
}

/** What a device holds at a time, in a curve of steps. */
export function heldAt(times, values, time) {
  const next = firstAtLeast(times, time);
  return values[times[next] === time ? next : Math.max(0, next - 1)];
}
