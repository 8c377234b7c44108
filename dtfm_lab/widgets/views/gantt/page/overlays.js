// What is drawn over the bars: numbers, the critical path, messages as arrows, and where iterations end.
import { inkOn } from "shared/theme.js";
import { firstAtLeast } from "./bars.js";
import { shadeOf } from "./raster.js";
/** @import { Columns, Context, DressedKind, End, EndLabel, Messages, Path, Place, Theme } from "../types.d.ts" */

export const FADED = 0.3; // how much of a bar off the critical path is left
export const MOST_ARROWS = 400; // in sight at once; more are a tangle
const NARROWEST = 1.5; // pixels of a bar on the path
const DIGIT = 0.62; // width of a digit, in sizes of the type
const GAP = 3; // pixels between two numbers of a row
const WIDE = 5; // pixels of a bar that gets an outline
const SAME = 0.75; // pixels: nearer points of the path are one
const HEAD = 5; // pixels of an arrow's head
const SEVEN = 7; // numbers that a raster writes of each

/**
 * Microbatch numbers on the bars that a raster found wide enough.
 * @type {(context: Context, numbers: number[], kinds: DressedKind[], size: number) => void}
 */
export function paintNumbers(context, numbers, kinds, size) {
  context.font = context.font.replace(/^\d+px/, `${size}px`);
  context.textAlign = "center";
  context.textBaseline = "middle";
  /** @type {string | null} */
  let ink = null;
  /** @type {Map<number, number>} */
  const writtenTo = new Map(); // by row, where the last number ends: messages at one time overlap, their numbers must not
  for (let at = 0; at < numbers.length; at += SEVEN) {
    const [x, y, width, height, number] = [numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]];
    if (number > 99 && width < 23) continue;
    const half = (String(number).length * size * DIGIT) / 2;
    if (x + width / 2 - half < (writtenTo.get(y) ?? -Infinity)) continue;
    writtenTo.set(y, x + width / 2 + half + GAP);
    const wanted = kinds[numbers[at + 5]].inks[numbers[at + 6]];
    if (wanted !== ink) context.fillStyle = ink = wanted;
    context.fillText(String(number), x + width / 2, y + height / 2 + 0.5);
  }
}

/**
 * The bars of the path in full colour and outlined, and a line that follows it from row to row.
 * @type {(context: Context, place: Place, path: Path, columns: Columns, kinds: DressedKind[], perPipeline: number, ink: string, casing: string) => void}
 */
export function paintPath(context, place, path, columns, kinds, perPipeline, ink, casing) {
  /** @type {[number, number, number, number][]} */
  const boxes = []; // x, y, width, height of those with an outline
  /** @type {number[]} */
  const numbers = []; // as a raster writes them
  /** @type {{ command: "lineTo" | "moveTo", x: number, y: number }[]} */
  const line = [];
  /** @type {(command: "lineTo" | "moveTo", x: number, y: number) => void} */
  const add = (command, x, y) => {
    const last = line.at(-1);
    if (command === "lineTo" && last && Math.abs(x - last.x) < SAME && Math.abs(y - last.y) < SAME) return;
    line.push({ command, x, y });
  };
  const first = Math.max(0, firstAtLeast(path.reach, place.from) - 1); // where the line comes in from
  for (let at = first; at < path.bar.length; at++) {
    const bar = path.bar[at];
    const [from, to] = [place.x(path.start[at]), place.x(path.end[at])];
    const entry = bar < 0 || !place.isShown(path.row[at]) ? null : kinds[columns.kind[bar]];
    const [y, height] = entry ? place.band(path.row[at], columns.kind[bar]) : [place.middle(path.row[at]), 0];
    const wide = entry !== null && to - from > WIDE;
    add(line.length ? "lineTo" : "moveTo", from, y + height / 2);
    if (path.start[at] > place.to) break;
    add(wide ? "moveTo" : "lineTo", to, y + height / 2); // an outline says enough
    if (!entry || path.end[at] < place.from) continue;
    const left = Math.max(place.left, from);
    const width = Math.max(NARROWEST, Math.min(place.right, to) - left);
    const shade = shadeOf(columns.stage[bar], entry.shades.length, perPipeline);
    context.fillStyle = entry.shades[shade];
    context.fillRect(left, y, width, height);
    if (width >= 15 && height >= 11 && columns.microbatch[bar] >= 0) numbers.push(left, y, width, height, columns.microbatch[bar], columns.kind[bar], shade);
    if (wide) boxes.push([left, y, width, height]);
  }
  paintNumbers(context, numbers, kinds, 11);
  context.lineJoin = "round";
  for (const [width, color] of /** @type {[number, string][]} */ ([
    [4, casing],
    [2, ink],
  ])) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    for (const box of boxes) context.rect(...box);
    for (const { command, x, y } of line) context[command](x, y);
    context.stroke();
  }
  context.lineJoin = "miter";
}

/**
 * Arrows from sender to receiver; how many are in sight, drawn only where they are few enough.
 * @type {(context: Context, place: Place, messages: Messages, color: string) => number}
 */
export function paintMessages(context, place, messages, color) {
  const { source, target, leaves, arrives, reach } = messages;
  /** @type {number[]} */
  const seen = [];
  let count = 0;
  for (let at = firstAtLeast(reach, place.from); at < leaves.length && leaves[at] <= place.to; at++)
    if (arrives[at] >= place.from && ++count <= MOST_ARROWS) seen.push(at);
  if (count > MOST_ARROWS) return count;
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
  return count;
}

/**
 * Where the labels of the iterations' ends go on the axis: [from, to] of each in pixels, and its end.
 * @type {(context: Context, place: Place, ends: End[], theme: Theme) => EndLabel[]}
 */
export function endLabels(context, place, ends, theme) {
  context.font = `600 ${theme.font}`;
  const inSight = ends
    .filter(({ at }) => at >= place.from)
    .map((end) => ({ ...end, x: Math.min(place.right, place.x(end.at)), isBeyond: at(end) > place.to * 1.0001, from: 0, to: 0 }))
    .sort((one, other) => one.x - other.x);
  let room = place.right + 12; // labels end where the one to their right begins
  const fit = () => inSight.reduce((sum, { text }) => sum + context.measureText(text).width + 12, 0) <= room;
  for (const less of [/^iteration \d+ /, / \([^)]*\)$/]) if (!fit()) for (const end of inSight) end.text = end.text.replace(less, ""); // a phone
  for (const end of inSight.reverse()) {
    const width = context.measureText(end.text).width;
    end.to = Math.min(room, end.x + 6 + width / 2);
    end.from = end.to - width;
    room = end.from - 12;
  }
  return inSight;
}

/** @type {(end: End) => number} */
const at = (end) => end.at;

/**
 * Where each iteration ends: a line down all rows, and a label on the axis.
 * @type {(context: Context, place: Place, labels: EndLabel[], theme: Theme) => void}
 */
export function paintEnds(context, place, labels, theme) {
  context.strokeStyle = context.fillStyle = theme.text;
  context.lineWidth = 1.25;
  for (const { x, dashed, isBeyond } of labels) {
    if (isBeyond) continue;
    context.setLineDash(dashed ? [4, 3] : []);
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, place.top - 5);
    context.lineTo(Math.round(x) + 0.5, place.rowsBottom);
    context.stroke();
  }
  context.setLineDash([]);
  context.font = `600 ${theme.font}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const { text, from, isBeyond } of labels) context.fillText(isBeyond ? `${text} \u2192` : text, isBeyond ? from - 14 : from, place.top - 14);
}

/**
 * Where the iteration may end: a zone over all rows, and a whisker above them that is open where it goes on.
 * @type {(context: Context, place: Place, interval: number[] | undefined, theme: Theme) => void}
 */
export function paintZone(context, place, [low, high] = [], theme) {
  if (low === undefined) return;
  context.fillStyle = theme.text;
  context.globalAlpha = 0.09;
  context.fillRect(place.x(low), place.top, Math.min(place.right, place.x(high)) - place.x(low), place.rowsBottom - place.top);
  context.globalAlpha = 1;
}

/** @type {(context: Context, place: Place, interval: number[] | undefined, theme: Theme) => void} */
export function paintWhisker(context, place, [low, high] = [], theme) {
  if (low === undefined || low > place.to || high < place.from) return;
  const [from, to] = [Math.max(place.left, place.x(low)), Math.min(place.right, place.x(high))];
  context.strokeStyle = theme.text;
  context.lineWidth = 1.25;
  context.beginPath();
  context.moveTo(from, place.top - 3.5);
  context.lineTo(to, place.top - 3.5);
  for (const [x, end] of [
    [from, low],
    [to, high],
  ]) {
    if (end < place.from || end > place.to) continue;
    context.moveTo(x, place.top - 7);
    context.lineTo(x, place.top);
  }
  context.stroke();
}

/** @type {(shades: string[]) => string[]} */
export const inksOf = (shades) => shades.map(inkOn);
