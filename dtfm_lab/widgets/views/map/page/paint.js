// Draws pipes, cards and badges at one moment.
import { LEAST_DIGIT, paintNumber } from "shared/cell.js";
import { gpuShape } from "shared/gpus.js";
import { linkDash, linkWidth } from "shared/links.js";
import { fitting } from "shared/text.js";
import { alarm, inkOn, kindColor, stageColor } from "shared/theme.js";
import { hostBox } from "../../editor/page/hosts.js";
import { NAME } from "./layout.js";
/** @import { Badge, Camera, Card, CardStyle, Context, Drawn, Goal, Layout, Pipe, PipeState, Press, Spot, Theme } from "../types.d.ts" */

const TURN = 2 * Math.PI;
/** Stands for the GPU of a badge that is a host. */
export const HOST = "\u0000host";
const READABLE = [11.5, 14]; // pixels of a badge that a number of one digit fits in, and one of two

/** @type {(theme: Theme, pixels: number, weight?: number) => string} */
const sized = (theme, pixels, weight = 400) => theme.font.replace("12px", `${pixels}px`).replace(/^/, `${weight} `);

/** @type {(context: Context, points: Spot[], toScreen: Camera["toScreen"]) => void} */
function stroke(context, points, toScreen) {
  context.beginPath();
  points.forEach(([x, y], at) => context[at ? "lineTo" : "moveTo"](...toScreen(x, y)));
  context.stroke();
}

/**
 * Pipes: faint ones first, suspects in red; `state(pair)` is {used, strong, suspect, opacity, averaging}.
 * @type {(context: Context, pairs: Pipe[], camera: Camera, theme: Theme, state: (pair: Pipe) => PipeState) => void}
 */
export function paintPipes(context, pairs, camera, theme, state) {
  /** @type {[Pipe, PipeState][]} */
  const states = pairs.map((pair) => [pair, state(pair)]);
  for (const layer of [false, true])
    for (const [pair, { used, strong, suspect, opacity, averaging }] of states) {
      if ((used || strong || suspect || averaging) !== layer) continue;
      const many = pairs.length > 40;
      context.globalAlpha = opacity * (strong || suspect ? 0.95 : averaging ? 0.75 : used ? (many ? 0.5 : 0.66) : many ? 0.13 : pair.averages ? 0.34 : 0.22);
      context.strokeStyle = suspect
        ? alarm(theme.dark)
        : averaging && !strong
          ? kindColor("averaging", theme.dark)
          : used || strong
            ? theme.text
            : theme.softText;
      context.lineWidth = linkWidth(pair.nics ?? pair.gbps) * (strong || !many ? 1 : 0.6);
      context.setLineDash(linkDash(pair.ms));
      stroke(context, pair.points, camera.toScreen);
    }
  context.setLineDash([]);
  context.globalAlpha = 1;
}

const HALO = 7; // pixels on each side of what limits the plan
const BEAT = 9; // pixels that a beat of its pulse grows

/**
 * The pipe that limits the plan: a band of ink under it, which widens at each beat.
 * @type {(context: Context, pair: Pipe, camera: Camera, theme: Theme, beat: { grown: number, strength: number } | null) => void}
 */
export function paintBound(context, pair, camera, theme, beat) {
  const width = linkWidth(pair.nics ?? pair.gbps) + 2 * HALO;
  context.strokeStyle = theme.text;
  context.lineCap = "round";
  for (const [wide, alpha] of [[width, 0.13], ...(beat ? [[width + 2 * BEAT * beat.grown, 0.25 * beat.strength]] : [])]) {
    context.globalAlpha = alpha;
    context.lineWidth = wide;
    stroke(context, pair.points, camera.toScreen);
  }
  context.lineCap = "butt";
  context.globalAlpha = 1;
}

/**
 * The device that limits the plan: a ring of ink around its badge, which widens at each beat.
 * @type {(context: Context, badge: Badge, theme: Theme, beat: { grown: number, strength: number } | null) => void}
 */
export function paintRing(context, { x, y, gpu, radius, stage }, theme, beat) {
  context.strokeStyle = theme.text;
  for (const [away, wide, alpha] of [[4.5, 5, 0.16], ...(beat ? [[4.5 + BEAT * beat.grown, 4, 0.4 * beat.strength]] : [])]) {
    context.globalAlpha = alpha;
    context.lineWidth = wide;
    outline(context, gpu, x, y, radius + away, stage);
    context.stroke();
  }
  context.globalAlpha = 1;
}

/**
 * Leaders to true places, then cards with their names; `style` is {chosen, aimed, pointed, focused, counts(card), nStages}.
 * @type {(context: Context, layout: { cards: Card[] }, camera: Camera, theme: Theme, style: CardStyle) => void}
 */
export function paintCards(context, layout, camera, theme, style) {
  const scale = camera.cardScale;
  context.lineWidth = 1;
  for (const card of layout.cards) {
    if (!card.home) continue;
    const [x, y] = camera.toScreen(...card.home);
    const [cx, cy] = camera.toScreen(card.x, card.y);
    context.strokeStyle = theme.softText;
    context.globalAlpha = 0.45;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(cx, cy + (NAME / 2) * scale);
    context.stroke();
    context.globalAlpha = 0.85;
    context.fillStyle = theme.softText;
    context.beginPath();
    context.arc(x, y, 2.6, 0, TURN);
    context.fill();
  }
  context.globalAlpha = 1;
  for (const card of [...layout.cards].sort((a, b) => Number(Boolean(a.opened)) - Number(Boolean(b.opened)))) paintCard(context, card, camera, theme, style);
}

/** @type {(context: Context, card: Card, camera: Camera, theme: Theme, style: CardStyle) => void} */
function paintCard(context, card, camera, theme, style) {
  const scale = camera.cardScale;
  const [x, y] = camera.toScreen(card.x, card.y);
  const [w, h] = [card.w * scale, (card.h - NAME) * scale];
  const [left, top] = [x - w / 2, y - (card.h / 2 - NAME) * scale];
  const { name } = card;
  context.beginPath();
  context.roundRect(left, top, w, h, 9 * Math.min(scale, 1.3));
  context.fillStyle = theme.surface;
  context.fill();
  const strong = name === style.aimed || name === style.pointed || name === style.focused || style.chosen(card);
  context.strokeStyle = strong ? theme.text : theme.border;
  context.lineWidth = name === style.aimed ? 3 : style.chosen(card) || name === style.focused ? 2 : 1;
  context.setLineDash(card.devices.length ? [] : [3, 3]);
  context.stroke();
  context.setLineDash([]);
  const size = Math.max(9, Math.min(15, 12 * scale));
  if (12 * scale > 6) {
    context.font = sized(theme, size, 650);
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    const text = fitting(context, name || "no region", Math.max(w + 16, 90));
    context.lineJoin = "round";
    context.lineWidth = 3;
    context.strokeStyle = theme.surface;
    context.strokeText(text, x, top - 4 * scale);
    context.fillStyle = theme.text;
    context.fillText(text, x, top - 4 * scale);
  }
  if (card.more) paintFolded(context, card, [left, top, w, h], camera, theme, style);
}

/**
 * "+24" in the last slot, and the counts of all stages as a bar.
 * @type {(context: Context, card: Card, box: number[], camera: Camera, theme: Theme, style: CardStyle) => void}
 */
function paintFolded(context, card, [left, top, w, h], camera, theme, style) {
  const scale = camera.cardScale;
  const [x, y] = camera.toScreen(card.x, card.y);
  const [dx, dy] = card.slots.at(-1);
  context.font = sized(theme, Math.max(9, Math.min(12, 0.62 * card.cell * scale)), 650);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = theme.softText;
  if (card.cell * scale >= 12) context.fillText(`+${card.more}`, x + dx * scale, y + dy * scale + 0.5);
  let at = left + 5 * scale;
  const counts = style.counts(card);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  for (const [stage, count] of counts) {
    const part = ((w - 10 * scale) * count) / all;
    context.fillStyle = stage < 0 ? theme.border : stageColor(stage, style.nStages, theme.dark);
    context.fillRect(at, top + h - 8 * scale, part, 4 * scale);
    at += part;
  }
}

/**
 * The outline of a GPU's kind around (x, y); a circle with two digits on it is a pill.
 * @type {(context: Context, gpu: string, x: number, y: number, radius: number, stage?: number) => void}
 */
export function outline(context, gpu, x, y, radius, stage = 0) {
  context.beginPath();
  const shape = gpu === HOST ? "box" : gpuShape(gpu);
  if (shape === "circle" && stage > 9) return context.roundRect(x - 1.14 * radius, y - 0.96 * radius, 2.28 * radius, 1.92 * radius, 0.9 * radius);
  if (shape === "box") context.roundRect(x - 0.94 * radius, y - 0.86 * radius, 1.88 * radius, 1.72 * radius, radius * 0.35);
  else if (shape === "triangle") {
    const [wide, tall] = [1.06 * radius, 0.98 * radius];
    context.moveTo(x, y - tall);
    context.lineTo(x + wide, y + 0.86 * tall);
    context.lineTo(x - wide, y + 0.86 * tall);
    context.closePath();
  } else context.arc(x, y, radius, 0, TURN);
}

/**
 * The cells of a host's badge: where its devices have several stages, or a cell has room for its stage's number. Null
 * where one colour and number say it all.
 * @type {(stages: number[], radius: number) => ReturnType<typeof hostBox> | null}
 */
function cellsOf(stages, radius) {
  const box = hostBox(stages.length, { width: 1.88 * radius, height: 1.72 * radius });
  return new Set(stages).size > 1 || box.cell.width >= LEAST_DIGIT ? box : null;
}

/** @type {(context: Context, stage: number, cell: { x: number, y: number, width: number, height: number }, theme: Theme, nStages: number) => void} */
function paintCell(context, stage, cell, theme, nStages) {
  const { x, y, width, height } = cell;
  context.fillStyle = stage < 0 ? theme.raised : stageColor(stage, nStages, theme.dark);
  context.fillRect(x - width / 2, y - height / 2, width, height);
  if (stage >= 0) paintNumber(context, stage, cell, nStages, theme);
}

/**
 * One badge {x, y, radius, gpu, stage, alpha, chosen, focused}; without a plan it is a hollow shape. A host has a
 * cell for each of its devices.
 * @type {(context: Context, badge: Drawn, theme: Theme, nStages: number, hasPlan: boolean) => void}
 */
export function paintBadge(context, badge, theme, nStages, hasPlan) {
  const { x, y, radius, gpu, stage, alpha } = badge;
  if (alpha <= 0.01 || radius < 0.5) return;
  context.globalAlpha = alpha;
  outline(context, gpu, x, y, radius, stage);
  const color = stage === undefined ? null : stageColor(stage, nStages, theme.dark);
  const cells = badge.stages && cellsOf(badge.stages, radius);
  if (badge.stages && cells) {
    context.fillStyle = theme.surface;
    context.fill();
    context.strokeStyle = theme.border;
    context.lineWidth = 1;
    context.stroke();
    badge.stages.forEach((held, at) => paintCell(context, held, { ...cells.cell, x: x + cells.middles[at].x, y: y + cells.middles[at].y }, theme, nStages));
  } else if (color) {
    context.fillStyle = color;
    context.fill();
  } else {
    context.fillStyle = hasPlan ? theme.surface : theme.raised;
    context.fill();
    context.strokeStyle = theme.softText;
    context.lineWidth = 1.2;
    context.setLineDash(hasPlan ? [2, 2] : []);
    context.stroke();
    context.setLineDash([]);
  }
  const wide = stage !== undefined && stage > 9;
  if (color && !cells && 2 * radius >= READABLE[wide ? 1 : 0]) {
    context.fillStyle = inkOn(color);
    context.font = sized(theme, Math.max(11, Math.min(15, radius * 1.1)), 650);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.letterSpacing = wide && radius < 10 ? "-0.7px" : "0px";
    context.fillText(String(stage), x, y + (gpuShape(gpu) === "triangle" ? 0.28 * radius : 0.5));
    context.letterSpacing = "0px";
  }
  if (badge.chosen || badge.focused) {
    context.strokeStyle = theme.text;
    context.lineWidth = 2;
    context.setLineDash(badge.focused && !badge.chosen ? [3, 2] : []);
    outline(context, gpu, x, y, radius + 2.5, stage);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
}

/**
 * Where a badge will land, or has left.
 * @type {(context: Context, gpu: string, x: number, y: number, radius: number, theme: Theme) => void}
 */
export function paintSeat(context, gpu, x, y, radius, theme) {
  outline(context, gpu, x, y, radius);
  context.strokeStyle = theme.border;
  context.lineWidth = 1;
  context.stroke();
}

/**
 * A ring around the city that something would come to, with its name.
 * @type {(context: Context, goal: Goal, theme: Theme) => void}
 */
export function paintTarget(context, { name, x, y }, theme) {
  context.strokeStyle = theme.text;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, 8, 0, TURN);
  context.stroke();
  context.font = sized(theme, 12, 650);
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.lineJoin = "round";
  context.lineWidth = 3;
  context.strokeStyle = theme.surface;
  context.strokeText(name, x, y - 13);
  context.fillStyle = theme.text;
  context.fillText(name, x, y - 13);
}

/**
 * What Shift and a drag select.
 * @type {(context: Context, press: Press, theme: Theme) => void}
 */
export function paintBox(context, { start: [x0, y0], now: [x1, y1] }, theme) {
  context.strokeStyle = context.fillStyle = theme.text;
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.strokeRect(x0, y0, x1 - x0, y1 - y0);
  context.setLineDash([]);
  context.globalAlpha = 0.06;
  context.fillRect(x0, y0, x1 - x0, y1 - y0);
  context.globalAlpha = 1;
}
