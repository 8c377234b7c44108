// The weights between any two groups as a heat map in ink, in path order with the hops outlined beside the diagonal.
import { seconds } from "shared/axis.js";
import { GREY } from "shared/theme.js";
/** @import { Context, Theme } from "shared/types.d.ts" */
/** @import { Data, Grid, Step } from "../types.d.ts" */

const MARGIN = { left: 58, top: 34, right: 108, bottom: 14 };
const BAR = 14;
const WRITTEN = 46; // pixels of a cell that has room for its seconds

/**
 * Between the page's background and its ink: only ink shows how expensive something is.
 * @type {(share: number, theme: Theme) => string}
 */
function inkShare(share, { surface, text }) {
  return `color-mix(in srgb, ${text} ${Math.round(7 + 73 * share)}%, ${surface})`;
}

/** @type {(context: Context, grid: Grid, row: number, column: number, text: string, paint: string) => void} */
function write(context, { left, top, cell }, row, column, text, paint) {
  context.fillStyle = paint;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, left + (column + 0.5) * cell, top + (row + 0.5) * cell);
}

/**
 * `order` says which group stands where, `marked` which ones hold what is selected.
 * @type {(context: Context, width: number, height: number, data: Data & { order: number[], step: Step, marked: Set<number> }, theme: Theme) => Grid}
 */
export function paintMatrix(context, width, height, { groups, weights, edge, order, step, marked }, theme) {
  const n = groups.length;
  const side = Math.max(40, Math.min(width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom));
  const grid = { left: Math.max(MARGIN.left, (width - side - MARGIN.right + MARGIN.left) / 2), top: MARGIN.top, cell: side / n, n, order };
  context.font = theme.font;
  const between = weights.flatMap((row, a) => row.filter((value, b) => a !== b && isFinite(value)));
  const [low, high] = between.length ? [Math.min(...between), Math.max(...between)] : [0, 1];
  /** @type {(value: number) => string} */
  const color = (value) => inkShare(high > low ? (value - low) / (high - low) : 0, theme);

  for (let a = 0; a < n; a++)
    for (let b = 0; b < n; b++) {
      const weight = weights[order[a]]?.[order[b]];
      context.fillStyle = a === b ? theme.surface : isFinite(weight) ? color(weight) : GREY; // a group and itself are no pair
      context.fillRect(grid.left + b * grid.cell, grid.top + a * grid.cell, grid.cell + 0.5, grid.cell + 0.5);
      if (grid.cell >= WRITTEN && isFinite(weight) && a !== b)
        write(context, grid, a, b, seconds(weight), high > low && (weight - low) / (high - low) > 0.5 ? theme.surface : theme.text);
    }
  if (step === "e") paintPath(context, grid, theme);
  if (edge) paintEdge(context, grid, edge, theme);
  for (const stage of marked) paintEdge(context, grid, [stage, stage], theme);
  paintLabels(
    context,
    grid,
    order.map((stage) => (step === "e" ? String(stage) : (groups[stage].letter ?? String(stage)))),
    step === "e" ? "stage" : "group",
    theme,
  );
  paintColorBar(context, grid.left + side + 22, grid.top, side, { low, high, color }, theme);
  return grid;
}

/** @type {(context: Context, grid: Grid, theme: Theme) => void} */
function paintPath(context, grid, theme) {
  context.strokeStyle = theme.text;
  context.lineWidth = 1;
  for (let hop = 0; hop < grid.n - 1; hop++) outline(context, grid, hop, hop + 1);
}

/**
 * Paper inside ink, so that it stands out on light and on dark cells.
 * @type {(context: Context, grid: Grid, edge: number[], theme: Theme) => void}
 */
function paintEdge(context, grid, [a, b], theme) {
  context.strokeStyle = theme.surface;
  context.lineWidth = 6;
  outline(context, grid, grid.order.indexOf(a), grid.order.indexOf(b));
  context.strokeStyle = theme.text;
  context.lineWidth = 3;
  outline(context, grid, grid.order.indexOf(a), grid.order.indexOf(b));
}

/** @type {(context: Context, grid: Grid, one: number, other: number) => void} */
function outline(context, { left, top, cell }, one, other) {
  for (const [row, column] of [
    [one, other],
    [other, one],
  ])
    context.strokeRect(left + column * cell + 0.5, top + row * cell + 0.5, cell - 1, cell - 1);
}

/** @type {(context: Context, grid: Grid, names: string[], what: string, theme: Theme) => void} */
function paintLabels(context, grid, names, what, theme) {
  context.font = theme.font;
  context.fillStyle = theme.softText;
  context.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(22 / grid.cell));
  names.forEach((name, index) => {
    if (index % every) return;
    const centre = (index + 0.5) * grid.cell;
    context.textAlign = "right";
    context.fillText(name, grid.left - 6, grid.top + centre);
    context.textAlign = "center";
    context.fillText(name, grid.left + centre, grid.top - 9);
  });
  const middle = (grid.n * grid.cell) / 2;
  context.fillText(what, grid.left + middle, grid.top - 24);
  context.save();
  context.translate(grid.left - 34, grid.top + middle);
  context.rotate(-Math.PI / 2);
  context.fillText(what, 0, 0);
  context.restore();
}

/** @type {(context: Context, x: number, y: number, height: number, scale: { low: number, high: number, color: (value: number) => string }, theme: Theme) => void} */
function paintColorBar(context, x, y, height, { low, high, color }, theme) {
  for (let at = 0; at < height; at++) {
    context.fillStyle = color(high - ((high - low) * at) / height);
    context.fillRect(x, y + at, BAR, 1.5);
  }
  context.fillStyle = theme.softText;
  context.textAlign = "left";
  for (const share of [0, 0.5, 1])
    context.fillText(seconds(low + (high - low) * share), x + BAR + 6, y + height * (1 - share) + (share === 1 ? 5 : share === 0 ? -5 : 0));
}

/**
 * The two groups of the cell under a point, the same one twice on the diagonal.
 * @type {(grid: Grid, x: number, y: number) => [number, number] | null}
 */
export function cellUnder(grid, x, y) {
  const [column, row] = [Math.floor((x - grid.left) / grid.cell), Math.floor((y - grid.top) / grid.cell)];
  return row >= 0 && column >= 0 && row < grid.n && column < grid.n ? [grid.order[row], grid.order[column]] : null;
}
