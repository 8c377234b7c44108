// Labels, the backs of rows, and the time axis on top.
import { tickLabel, ticks } from "shared/axis.js";
import { fitting } from "shared/text.js";
import { inkOn, stageColor } from "shared/theme.js";
import { BADGE } from "./layout.js";
/** @import { AxisUnit, Context, Place, Theme, Unit } from "../types.d.ts" */

const LABEL = 13; // pixels of height that a row needs for its label
const MEMBER_INDENT = 12;

/**
 * Backs and labels of units, those selected lit up, and where groups begin.
 * @type {(context: Context, place: Place, look: { lit: (unit: Unit) => boolean, nStages: number }, theme: Theme) => void}
 */
export function paintRows(context, place, { lit, nStages }, theme) {
  context.textBaseline = "middle";
  let free = -Infinity; // from here down labels have room
  place.shown.forEach((unit, slot) => {
    const [y, height] = [place.slotTop(slot), place.heightOf(slot)];
    if (y + height < place.top || y > place.rowsBottom) return;
    const isLit = lit(unit);
    if (isLit) {
      context.globalAlpha = 0.07;
      context.fillStyle = theme.text;
      context.fillRect(0, y, place.right, height);
      context.globalAlpha = 1;
      context.fillRect(0, y, 3, height);
    }
    if (slot && !unit.depth && height > 12) {
      context.fillStyle = theme.softBorder;
      context.fillRect(0, Math.round(y) - 0.5, place.right, 1);
    }
    const middle = y + height / 2;
    if (!isLit && middle - LABEL / 2 < free) return;
    free = middle + LABEL / 2;
    paintLabel(context, place, unit, middle, height, isLit, nStages, theme);
  });
  context.font = theme.font;
}

/** @type {(context: Context, place: Place, unit: Unit, middle: number, height: number, isLit: boolean, nStages: number, theme: Theme) => void} */
function paintLabel(context, place, unit, middle, height, isLit, nStages, theme) {
  const badged = unit.stage >= 0 && !unit.depth;
  const radius = Math.min(BADGE, Math.max(6, height / 2 - 1));
  if (badged) {
    const color = stageColor(unit.stage, nStages, theme.dark);
    context.fillStyle = color;
    context.beginPath();
    const wide = unit.stage > 99 ? 6 : unit.stage > 9 ? 3 : 0;
    context.roundRect(6 + BADGE - radius - wide / 2, middle - radius, 2 * radius + wide, 2 * radius, radius);
    context.fill();
    context.fillStyle = inkOn(color);
    context.font = `600 ${theme.font.replace(/^\d+px/, `${12}px`)}`;
    context.textAlign = "center";
    context.fillText(String(unit.stage), 6 + BADGE, middle + 0.5);
  }
  const x = badged ? 6 + 2 * BADGE + 8 : place.hasBadges ? 6 + 2 * BADGE + 8 + (unit.depth ? MEMBER_INDENT - 8 : 0) : 8;
  context.font = isLit ? `600 ${theme.font}` : theme.font;
  context.textAlign = "left";
  context.fillStyle = unit.depth ? theme.softText : theme.text;
  const chevron = unit.nMembers ? 12 : 0;
  context.fillText(fitting(context, unit.label, place.left - x - 8 - chevron), x, middle + 0.5);
  if (!chevron) return;
  context.strokeStyle = theme.softText;
  context.lineWidth = 1.5;
  context.beginPath();
  const [cx, cy] = [place.left - 12, middle];
  if (unit.isOpen) {
    context.moveTo(cx - 4, cy - 2);
    context.lineTo(cx, cy + 2);
    context.lineTo(cx + 4, cy - 2);
  } else {
    context.moveTo(cx - 2, cy - 4);
    context.lineTo(cx + 2, cy);
    context.lineTo(cx - 2, cy + 4);
  }
  context.stroke();
}

/**
 * The whole chart decides the unit and how fine a moment is told, so that zooming does not change them.
 * @type {(wholeSeconds: number, unit: string) => AxisUnit}
 */
export function axisUnit(wholeSeconds, unit) {
  const [name, perSecond, decimals] = unit !== "s" || wholeSeconds >= 1 ? [unit, 1, 5] : wholeSeconds >= 1e-3 ? ["ms", 1e3, 3] : ["\u00b5s", 1e6, 3];
  const power = Math.floor(Math.log10(wholeSeconds * perSecond || 1));
  return { name, perSecond, decimals: Math.max(0, Math.min(perSecond > 1 ? 6 : 3, decimals - power)) };
}

/**
 * Lines down the rows, before anything else is painted.
 * @type {(context: Context, place: Place, unit: AxisUnit, theme: Theme) => void}
 */
export function paintGrid(context, place, unit, theme) {
  context.lineWidth = 1;
  context.strokeStyle = theme.softBorder;
  context.beginPath();
  for (const { x } of marksOf(place, unit)) {
    context.moveTo(x, place.top);
    context.lineTo(x, place.rowsBottom);
  }
  context.stroke();
}

/**
 * The axis over the rows that scroll beneath it; a label makes way for those in `taken`, [from, to] in pixels.
 * @type {(context: Context, place: Place, unit: AxisUnit, taken: [number, number][], width: number, whole: number[], theme: Theme) => void}
 */
export function paintAxis(context, place, unit, taken, width, whole, theme) {
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, place.top);
  context.textBaseline = "middle";
  context.font = theme.font;
  context.fillStyle = theme.softText;
  place.ticks = []; // [from, to] of those that are written
  for (const { x, text } of marksOf(place, unit)) {
    const half = context.measureText(text).width / 2;
    const middle = Math.min(x, place.right + 10 - half);
    if (taken.some(([from, to]) => middle + half > from - 4 && middle - half < to + 4)) continue;
    context.textAlign = "center";
    context.fillText(text, middle, place.top - 14);
    place.ticks.push({ from: middle - half, to: middle + half });
  }
  context.fillStyle = theme.border;
  context.fillRect(0, place.top - 1, place.right, 1);
  const [first, last] = whole;
  if (place.to - place.from < (last - first) * 0.999) {
    // which part of all is in sight
    /** @type {(time: number) => number} */
    const at = (time) => place.left + ((time - first) / (last - first)) * (place.right - place.left);
    context.fillStyle = theme.text;
    context.fillRect(at(place.from), place.top - 3, Math.max(3, at(place.to) - at(place.from)), 3);
  }
}

/** @type {(place: Place, unit: AxisUnit) => { x: number, text: string }[]} */
function marksOf(place, unit) {
  const [from, to] = [place.from * unit.perSecond, place.to * unit.perSecond];
  const marks = ticks(from, to, Math.max(2, (place.right - place.left) / 100)).filter((mark) => mark >= 0); // before 0 are gaps
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  return marks.map((mark) => ({ x: Math.round(place.x(mark / unit.perSecond)) + 0.5, text: mark === 0 ? "0" : `${tickLabel(mark, step)} ${unit.name}` }));
}
