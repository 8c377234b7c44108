// Draws the matrix: cells, borders of regions, names, what is selected and pointed at.
import { figures } from "shared/axis.js";
import { inkOn } from "shared/theme.js";
import { shadeOf } from "./cells.js";
import { fitting } from "shared/text.js";
/** @import { Context, Theme } from "shared/types.d.ts" */
/** @import { Bitmap, Block, Cells, Place, View } from "../types.d.ts" */

const WRITTEN = 34; // pixels per cell from which it shows its number

/** @type {(context: Context, place: Place, map: Bitmap, values: Float32Array, n: number, view: View, theme: Theme) => void} */
export function paintCells(context, place, map, values, n, view, theme) {
  context.fillStyle = theme.raised;
  context.fillRect(place.left, place.top, place.side, place.side);
  context.imageSmoothingEnabled = place.cell < 1; // more cells than pixels: mix them
  context.drawImage(map.image, view.x, view.y, view.span, view.span, place.left, place.top, place.side, place.side);
  if (place.cell < WRITTEN) return;
  context.font = theme.font;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let row = Math.floor(view.y); row < Math.min(n, view.y + view.span); row++) {
    for (let column = Math.floor(view.x); column < Math.min(n, view.x + view.span); column++) {
      const value = values[row * n + column];
      if (row === column) continue;
      context.fillStyle = inkOn(shadeOf(map.share(value)));
      context.fillText(figures(value), place.x(column + 0.5), place.y(row + 0.5));
    }
  }
}

/** @type {(context: Context, place: Place, work: () => void) => void} */
export function clipped(context, place, work) {
  context.save();
  context.beginPath();
  context.rect(place.left - 1, place.top - 1, place.side + 2, place.side + 2);
  context.clip();
  work();
  context.restore();
}

/**
 * Lines between cells where these are large, stronger ones between regions.
 * @type {(context: Context, place: Place, n: number, edges: number[], view: View, theme: Theme) => void}
 */
export function paintBorders(context, place, n, edges, view, theme) {
  /** @type {(at: number[], width: number) => void} */
  const lines = (at, width) => {
    context.strokeStyle = theme.surface;
    context.lineWidth = width;
    context.beginPath();
    for (const edge of at) {
      context.moveTo(place.x(edge), place.top);
      context.lineTo(place.x(edge), place.bottom);
      context.moveTo(place.left, place.y(edge));
      context.lineTo(place.right, place.y(edge));
    }
    context.stroke();
  };
  if (place.cell >= 10)
    lines(
      Array.from({ length: n + 1 }, (_, at) => at),
      1,
    );
  if ((edges.length - 1) * 5 < place.side * (n / view.span)) lines(edges, place.cell >= 10 ? 3 : 1.5);
}

/**
 * Names of devices where there is room, else of regions at their middles; `strong(index)` says which stand out.
 * @type {(context: Context, place: Place, names: string[], blocks: Block[], edges: number[], view: View, theme: Theme, strong: (index: number) => string) => void}
 */
export function paintNames(context, place, names, blocks, edges, view, theme, strong) {
  const entries = place.named
    ? names.map((name, at) => ({ name, from: at, to: at + 1, strong: strong(at) }))
    : blocks.map(([name], at) => ({ name: name || "no region", from: edges[at], to: edges[at + 1], strong: "" }));
  context.textBaseline = "middle";
  let [freeX, freeY] = [-Infinity, -Infinity];
  for (const { name, from, to, strong: color } of entries) {
    context.font = `${color ? "600 " : ""}${theme.font.replace("12px", place.named && place.cell < 12 ? "9px" : "12px")}`;
    const text = fitting(context, name, place.margin - 8);
    context.fillStyle = color || theme.softText;
    const [y, x] = [(Math.max(from, view.y) + Math.min(to, view.y + view.span)) / 2, (Math.max(from, view.x) + Math.min(to, view.x + view.span)) / 2];
    if (y > view.y && y < view.y + view.span && place.y(y) - 6 >= freeY) {
      context.textAlign = "right";
      context.fillText(text, place.left - 6, place.y(y));
      freeY = place.y(y) + 6;
    }
    if (x > view.x && x < view.x + view.span) {
      const { flat } = place;
      const half = flat ? context.measureText(text).width / 2 : 6;
      if (place.x(x) - half < freeX) continue;
      freeX = place.x(x) + half;
      context.save();
      context.translate(place.x(x), place.top - 6);
      if (!flat) context.rotate(-Math.PI / 2);
      context.textAlign = flat ? "center" : "left";
      context.fillText(flat ? text : fitting(context, name, place.top - place.band - 8), 0, flat ? -4 : 0);
      context.restore();
    }
  }
  context.font = theme.font;
  context.fillStyle = theme.softText;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillText("from ↓  to →", 6, place.top - 8);
  if (place.band) paintBands(context, place, blocks, edges, view, theme);
}

/**
 * The regions' names outside of their devices', each along its rows and columns.
 * @type {(context: Context, place: Place, blocks: Block[], edges: number[], view: View, theme: Theme) => void}
 */
function paintBands(context, place, blocks, edges, view, theme) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  blocks.forEach(([name], at) => {
    const [fromX, toX] = [Math.max(edges[at], view.x), Math.min(edges[at + 1], view.x + view.span)];
    const [fromY, toY] = [Math.max(edges[at], view.y), Math.min(edges[at + 1], view.y + view.span)];
    for (const [from, to, turned] of /** @type {[number, number, boolean][]} */ ([
      [place.x(fromX), place.x(toX), false],
      [place.y(fromY), place.y(toY), true],
    ])) {
      if (to - from < 14) continue;
      context.save();
      if (turned) {
        context.translate(9, (from + to) / 2);
        context.rotate(-Math.PI / 2);
      } else context.translate((from + to) / 2, 9);
      context.font = `650 ${theme.font}`;
      context.fillStyle = theme.text;
      context.fillText(fitting(context, name || "no region", to - from - 6), 0, 0);
      context.fillStyle = theme.border;
      context.fillRect((from - to) / 2 + 2, 8, to - from - 4, 1);
      context.restore();
    }
  });
}

/**
 * Fades the cells outside of `lit` rows and columns: those of one device, or those among several.
 * @type {(context: Context, place: Place, n: number, lit: Set<number>, theme: Theme) => void}
 */
export function paintShade(context, place, n, lit, theme) {
  /** @type {{ from: number, to: number, isLit: boolean }[]} */
  const runs = [];
  for (let at = 0; at < n; at++) {
    const isLit = lit.has(at);
    if (runs.length && runs.at(-1).isLit === isLit) runs.at(-1).to = at + 1;
    else runs.push({ from: at, to: at + 1, isLit });
  }
  const single = lit.size === 1;
  context.globalAlpha = 0.72;
  context.fillStyle = theme.surface;
  for (const rows of runs) {
    for (const columns of runs) {
      if (single ? rows.isLit || columns.isLit : rows.isLit && columns.isLit) continue;
      context.fillRect(place.x(columns.from), place.y(rows.from), (columns.to - columns.from) * place.cell, (rows.to - rows.from) * place.cell);
    }
  }
  context.globalAlpha = 1;
}

/**
 * A frame around cells [row, column, to row, to column].
 * @type {(context: Context, place: Place, theme: Theme, cells: Cells) => void}
 */
export function paintFrame(context, place, theme, [row, column, toRow, toColumn]) {
  const [top, left] = [Math.min(row, toRow), Math.min(column, toColumn)];
  const [bottom, right] = [Math.max(row, toRow) + 1, Math.max(column, toColumn) + 1];
  const grow = Math.max(0, (6 - place.cell * (right - left)) / 2, (6 - place.cell * (bottom - top)) / 2); // one of 256 must be seen
  /** @type {[number, number, number, number]} */
  const box = [place.x(left) - grow, place.y(top) - grow, (right - left) * place.cell + 2 * grow, (bottom - top) * place.cell + 2 * grow];
  for (const [width, color] of /** @type {[number, string][]} */ ([
    [4, theme.surface],
    [2, theme.text],
  ])) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(...box);
  }
}

/**
 * Thin lines that follow the pointer's row and column to the names.
 * @type {(context: Context, place: Place, row: number, column: number, theme: Theme) => void}
 */
export function paintCross(context, place, row, column, theme) {
  context.globalAlpha = 0.85;
  context.strokeStyle = theme.text;
  context.lineWidth = 1;
  context.strokeRect(place.x(column) - 0.5, place.y(row) - 0.5, place.cell + 1, place.cell + 1);
  context.globalAlpha = 0.4;
  context.beginPath();
  context.moveTo(place.left, place.y(row + 0.5));
  context.lineTo(place.x(column), place.y(row + 0.5));
  context.moveTo(place.x(column + 0.5), place.top);
  context.lineTo(place.x(column + 0.5), place.y(row));
  context.stroke();
  context.globalAlpha = 1;
}
