// A placement as a tiny picture: one column per place, one cell per device, coloured by its stage.
import { stageColor } from "shared/theme.js";
/** @import { Context, Theme } from "shared/types.d.ts" */
/** @import { Cells, Person } from "../types.d.ts" */

/** Draws onto a canvas of this element's size; `stages` holds the stage of each device, -1 for an idle one; `shape` has
 * @type {(canvas: HTMLCanvasElement, cells: Cells, person: Person, theme: Theme) => void}
 * their number first. */
export function paintPicture(canvas, cells, { stages, shape }, theme) {
  const { clientWidth: wide, clientHeight: high } = canvas;
  if (!wide || !high || !cells.columns) return;
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
  const context = /** @type {Context} */ (canvas.getContext("2d"));
  const size = Math.min(canvas.width / cells.columns, canvas.height / cells.rows);
  const left = (canvas.width - size * cells.columns) / 2,
    top = (canvas.height - size * cells.rows) / 2;
  const gap = size > 5 * ratio ? Math.max(1, Math.round(ratio * 0.75)) : 0;
  cells.at.forEach(([column, row], device) => {
    const x = Math.round(left + column * size),
      y = Math.round(top + row * size);
    context.fillStyle = stages[device] < 0 ? theme.softBorder : stageColor(stages[device], shape[0], theme.dark);
    context.fillRect(x, y, Math.round(left + (column + 1) * size) - x - gap, Math.round(top + (row + 1) * size) - y - gap);
  });
}
