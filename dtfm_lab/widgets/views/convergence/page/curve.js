// One named series of a search, in columns.
import { BLUE, CATEGORIES, isDark, SKY } from "shared/theme.js";
/** @import { Theme } from "shared/types.d.ts" */
/** @import { Across, Column, Columns, Curves, Row } from "../types.d.ts" */

/** @type {Column[]} */
export const COLUMNS = ["evaluations", "seconds", "best", "bound", "median"];

export class Curve {
  /** @type {Columns} */
  #columns = { evaluations: [], seconds: [], best: [], bound: [], median: [] };

  get length() {
    return this.#columns.best.length;
  }
  /** @type {(name: Column) => number[]} */
  column(name) {
    return this.#columns[name];
  }
  /** @type {(name: Column) => number} */
  last(name) {
    return this.#columns[name][this.length - 1];
  }
  /** @type {(name: Column) => boolean} */
  has(name) {
    return isFinite(this.last(name));
  }

  /**
   * Forgets the newest `drop` rows and takes new ones, row by row in `values`.
   * @type {(drop: number, values: Float32Array) => void}
   */
  change(drop, values) {
    COLUMNS.forEach((name, index) => {
      const column = this.#columns[name];
      column.length = Math.max(0, column.length - drop);
      for (let at = index; at < values.length; at += COLUMNS.length) column.push(index > 2 && !(values[at] > 0) ? NaN : values[at]);
    });
  }

  /**
   * What was known at this number of evaluations or seconds.
   * @type {(against: Across, value: number) => Row | null}
   */
  rowAt(against, value) {
    const across = this.#columns[against];
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (across[middle] <= value) low = middle + 1;
      else high = middle;
    }
    if (low === 0) return null;
    return /** @type {Row} */ (Object.fromEntries(COLUMNS.map((name) => [name, this.#columns[name][low - 1]])));
  }
}

/**
 * The curve with the highest bound, which holds for all searches of the same problem.
 * @type {(curves: Curves) => Curve | null}
 */
export function bestBounded(curves) {
  const bounded = [...curves.values()].filter((curve) => curve.has("bound"));
  return bounded.reduce((best, curve) => (best && best.last("bound") >= curve.last("bound") ? best : curve), /** @type {Curve | null} */ (null));
}

/**
 * The first series must stand out on a dark page too, so the two blues are swapped there.
 * @type {(index: number, theme: Theme) => string}
 */
export function seriesColor(index, theme) {
  const color = CATEGORIES[index % CATEGORIES.length];
  if (!isDark(theme.surface)) return color;
  return color === BLUE ? SKY : color === SKY ? BLUE : color;
}

/**
 * With several searches, the bound has its own colour.
 * @type {(curves: Curves, theme: Theme) => string}
 */
export const boundColor = (curves, theme) => (curves.size > 1 ? theme.softText : seriesColor(0, theme));
