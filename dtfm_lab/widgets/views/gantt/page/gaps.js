// Gaps in rows of a run: a device was lost there, and its copy had not taken over yet.
import { alarm } from "shared/theme.js";
/** @import { Context, Gap, Place, State, Theme } from "../types.d.ts" */

const LEAST = 3; // pixels that a gap has at least
const CRACK = [
  [-0.5, 0],
  [0.35, 0.22],
  [-0.35, 0.45],
  [0.4, 0.68],
  [-0.3, 1],
]; // of its width and the gap's height
const CRACK_WIDTH = 7;
const ROOM = 16; // pixels beside the words

/**
 * [left, top, width, height] of a gap on the canvas; null where its row is not there.
 * @type {(gap: Gap, place: Place, devices: string[]) => [number, number, number, number] | null}
 */
function boxOf({ device, from, to }, place, devices) {
  const slot = place.slotOf(devices.indexOf(device));
  if (slot < 0 || to < place.from || from > place.to) return null;
  const [left, right] = [Math.max(place.left, place.x(from)), Math.min(place.right, place.x(to))];
  return [left, place.slotTop(slot) + 1, Math.max(LEAST, right - left), place.heightOf(slot) - 2];
}

/** @type {(context: Context, place: Place, state: Pick<State, "gaps" | "devices">, theme: Theme) => void} */
export function paintGaps(context, place, { gaps, devices }, theme) {
  for (const gap of gaps) {
    const box = boxOf(gap, place, devices);
    if (!box) continue;
    const [left, top, width, height] = box;
    context.fillStyle = theme.surface;
    context.fillRect(...box);
    context.fillStyle = context.strokeStyle = alarm(theme.dark);
    context.globalAlpha = 0.14;
    context.fillRect(...box);
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.beginPath();
    CRACK.forEach(([dx, dy], at) => context[at ? "lineTo" : "moveTo"](left + CRACK_WIDTH * (0.5 + dx), top + dy * height));
    context.stroke();
    context.setLineDash(gap.open ? [3, 3] : []); // an open one goes on
    context.beginPath();
    context.moveTo(left + width - 1, top);
    context.lineTo(left + width - 1, top + height);
    context.stroke();
    context.setLineDash([]);
    context.font = `600 ${theme.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    if (height >= 12 && context.measureText(gap.text).width + ROOM <= width)
      context.fillText(gap.text, left + (width + CRACK_WIDTH) / 2, top + height / 2 + 0.5);
    context.font = theme.font;
  }
}

/**
 * The gap at a place of the canvas; undefined for none.
 * @type {(x: number, y: number, place: Place, state: Pick<State, "gaps" | "devices">) => Gap | undefined}
 */
export const gapAt = (x, y, place, { gaps, devices }) =>
  gaps.find((gap) => {
    const [left, top, width, height] = boxOf(gap, place, devices) ?? [Infinity, 0, 0, 0];
    return x >= left && x <= left + width && y >= top && y <= top + height;
  });
