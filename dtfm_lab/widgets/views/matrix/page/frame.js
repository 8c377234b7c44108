// Where cells are on the screen: margins for names, and the part of the matrix that is seen.
/** @import { Context, Theme } from "shared/types.d.ts" */
/** @import { Block, View } from "../types.d.ts" */

const NAMED = 9; // pixels per cell from which devices have their names
const WIDEST = 128; // pixels for a name
const MOST_NAMES = 0.25; // of the width, for names beside rows
const CORNER = 74; // pixels for what the axes mean
const SCALE = 78; // pixels for the colour bar
const BAND = 18; // pixels for the regions' names outside of their devices'

/**
 * A square view of n cells a side that can be zoomed; `changed()` asks for a repaint.
 * @type {(count: () => number, changed: () => void) => View}
 */
export function viewOf(count, changed) {
  let [x, y, span] = [0, 0, 1];
  const n = () => Math.max(1, count());
  /** @type {(x: number, y: number, span: number) => void} */
  const look = (nextX, nextY, nextSpan) => {
    span = Math.min(n(), Math.max(Math.min(n(), 4), nextSpan));
    x = Math.min(n() - span, Math.max(0, nextX));
    y = Math.min(n() - span, Math.max(0, nextY));
    changed();
  };
  return {
    look,
    reset: () => look(0, 0, n()),
    zoom(factor, atX = x + span / 2, atY = y + span / 2) {
      const next = Math.min(n(), Math.max(Math.min(n(), 4), span * factor));
      look(atX - ((atX - x) * next) / span, atY - ((atY - y) * next) / span, next);
    },
    pan: (dx, dy) => look(x + dx, y + dy, span),
    /** Scrolls until a cell is in sight. */
    reach(row, column) {
      /** @type {(from: number, cell: number) => number} */
      const into = (from, cell) => Math.min(cell - Math.min(1, span / 8), Math.max(from, cell + 1 + Math.min(1, span / 8) - span));
      look(into(x, column), into(y, row), span);
    },
    get x() {
      return x;
    },
    get y() {
      return y;
    },
    get span() {
      return span;
    },
    get whole() {
      return span >= n();
    },
  };
}

/**
 * Sizes and conversions for one painting.
 * @param {Context} context
 * @param {number} width
 * @param {number} height
 * @param {string[]} names
 * @param {Block[]} blocks
 * @param {View} view
 * @param {Theme} theme
 */
export function placeOf(context, width, height, names, blocks, view, theme) {
  context.font = theme.font;
  /** @type {(text: string) => number} */
  const measure = (text) => Math.min(WIDEST, width * MOST_NAMES, context.measureText(text).width);
  /** @type {(texts: string[]) => number} */
  const widest = (texts) => Math.ceil(Math.max(24, ...texts.map(measure))) + 10;
  const roughly = (Math.min(width - SCALE, height) - 60) / view.span;
  const named = roughly >= NAMED;
  const share = Math.max(1, width - SCALE - 120) / view.span; // pixels per cell, approximately
  const flat = !named && blocks.every(([name, count]) => context.measureText(name || "no region").width < count * Math.min(share, roughly) - 8);
  const seen = named
    ? names.slice(Math.floor(Math.min(view.x, view.y)), Math.ceil(Math.max(view.x, view.y) + view.span))
    : blocks.map(([name]) => name || "no region");
  const margin = widest(seen);
  const band = named && blocks.length > 1 ? BAND : 0;
  const [left, top] = [Math.max(margin, CORNER - band) + 4 + band, (flat ? 26 : named ? Math.max(margin, 20) + 4 : Math.min(margin, 84) + 4) + band];
  const side = Math.max(40, Math.min(width - left - SCALE, height - top - 8));
  const cell = side / view.span;
  return {
    left,
    top,
    side,
    cell,
    named,
    margin,
    flat,
    band,
    right: left + side,
    bottom: top + side,
    scaleX: left + side + 18,
    x: (/** @type {number} */ column) => left + (column - view.x) * cell,
    y: (/** @type {number} */ row) => top + (row - view.y) * cell,
    column: (/** @type {number} */ px) => Math.floor((px - left) / cell + view.x),
    row: (/** @type {number} */ py) => Math.floor((py - top) / cell + view.y),
    inside: (/** @type {number} */ px, /** @type {number} */ py) => px >= left && px < left + side && py >= top && py < top + side,
    beside: (/** @type {number} */ px, /** @type {number} */ py) => px < left && py >= top && py < top + side,
    above: (/** @type {number} */ px, /** @type {number} */ py) => py < top && px >= left && px < left + side,
  };
}
