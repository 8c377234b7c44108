// What is drawn over the bars: the critical path, and messages as arrows.
import { CRIMSON, inkOn } from "../shared/theme.js";
import { firstAtLeast } from "./bars.js";
import { fill, numbered, shadeOf } from "./paint.js";

export const FADED = 0.3; // how much of a bar off the critical path is left
export const MOST_ARROWS = 400; // in sight at once; more are a tangle
const CASING = "#ffffff";
const NARROWEST = 1.5; // pixels of a bar on the path
const WIDE = 5; // pixels of a bar that gets an outline
const SAME = 0.75; // pixels: nearer points of the path are one
const HEAD = 5; // pixels of an arrow's head

/** The bars of the path in full colour and outlined, and a line that follows it from row to row. */
export function paintPath(context, place, path, columns, kinds, perPipeline) {
  const boxes = []; // of bars, five numbers each, as in paint.js
  const line = [];
  const add = (command, x, y) => {
    const last = line.at(-1);
    if (command === "lineTo" && last && Math.abs(x - last.x) < SAME && Math.abs(y - last.y) < SAME) return;
    line.push({ command, x, y });
  };
  const first = Math.max(0, firstAtLeast(path.reach, place.from) - 1); // where the line comes in from
  for (let at = first; at < path.bar.length; at++) {
    const bar = path.bar[at];
    const [from, to] = [place.x(path.start[at]), place.x(path.end[at])];
    const entry = bar < 0 ? null : kinds[columns.kind[bar]];
    const [y, height] = entry ? place.band(path.row[at], 0, columns.kind[bar]) : [place.middle(path.row[at]), 0];
    const wide = entry !== null && to - from > WIDE;
    add(line.length ? "lineTo" : "moveTo", from, y + height / 2);
    if (path.start[at] > place.to) break;
    add(wide ? "moveTo" : "lineTo", to, y + height / 2); // an outline says enough
    if (!entry || path.end[at] < place.from) continue;
    const left = Math.max(place.left, from);
    const box = [left, y, Math.max(NARROWEST, Math.min(place.right, to) - left), height, columns.microbatch[bar]];
    const color = entry.shades[shadeOf(columns.stage[bar], entry.shades.length, perPipeline)];
    fill(context, box, color);
    numbered(context, box, inkOn(color));
    if (wide) boxes.push(box);
  }
  context.lineJoin = "round";
  for (const [width, color] of [[4, CASING], [2, CRIMSON]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    for (const [left, y, w, height] of boxes) context.rect(left, y, w, height);
    for (const { command, x, y } of line) context[command](x, y);
    context.stroke();
  }
  context.lineJoin = "miter";
}

/** Arrows from sender to receiver; how many are in sight, drawn only where they are few enough. */
export function paintMessages(context, place, messages, color) {
  const { source, target, leaves, arrives, reach } = messages;
  const seen = [];
  for (let at = firstAtLeast(reach, place.from); at < leaves.length && leaves[at] <= place.to; at++)
    if (arrives[at] >= place.from) seen.push(at);
  if (seen.length > MOST_ARROWS) return seen.length;
  context.strokeStyle = context.fillStyle = color;
  context.lineWidth = 1.25;
  for (const at of seen) {
    const [x0, y0] = [place.x(leaves[at]), place.middle(source[at])];
    const [x1, y1] = [place.x(arrives[at]), place.middle(target[at])];
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const [dx, dy] = [(x1 - x0) / length, (y1 - y0) / length];
    const [baseX, baseY] = [x1 - dx * HEAD, y1 - dy * HEAD];
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(baseX, baseY);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(baseX - dy * HEAD * 0.5, baseY + dx * HEAD * 0.5);
    context.lineTo(baseX + dy * HEAD * 0.5, baseY - dx * HEAD * 0.5);
    context.fill();
  }
  return seen.length;
}
