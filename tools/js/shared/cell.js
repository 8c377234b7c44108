// The number in the cell of a host's device, the same in the editor and on the map.
import { inkOn, stageColor } from "./theme.js";
/** @import { Context, Point, Theme } from "./types.d.ts" */

export const LEAST_DIGIT = 9.5; // pixels of a cell's shorter side that its number fits in

/**
 * Writes a stage's number into the cell around x, y, if it has room.
 * @type {(context: Context, stage: number, cell: Point & { width: number, height: number }, nStages: number, theme: Theme) => void}
 */
export function paintNumber(context, stage, { x, y, width, height }, nStages, theme) {
  const least = Math.min(width, height);
  if (least < LEAST_DIGIT) return;
  const size = Math.min(14, Math.max(9, Math.round(0.62 * least)));
  context.font = `650 ${theme.font.replace("12px", `${size}px`)}`;
  context.fillStyle = inkOn(stageColor(stage, nStages, theme.dark));
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (context.measureText(String(stage)).width <= width - 1) context.fillText(String(stage), x, y + 0.5);
}
