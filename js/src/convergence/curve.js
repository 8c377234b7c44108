// One named series of a search, as rows of (evaluations, seconds of search, best cost, lower bound).
import { BLUE, CATEGORIES, SKY } from "../shared/theme.js";

export class Curve {
  evaluations = [];
  seconds = [];
  best = [];
  bound = [];

  get length() { return this.evaluations.length; }
  get hasBound() { return this.bound.some((value) => isFinite(value)); }
  get lastEvaluations() { return this.evaluations[this.length - 1]; }
  get lastBest() { return this.best[this.length - 1]; }

  /** A row that neither improves on its predecessor nor is the newest says nothing: it is replaced. */
  append(values, columns) {
    for (let at = 0; at < values.length; at += columns) {
      if (this.newestIsProvisional()) this.dropNewest();
      this.evaluations.push(values[at]);
      this.seconds.push(values[at + 1]);
      this.best.push(values[at + 2]);
      this.bound.push(values[at + 3] > 0 ? values[at + 3] : NaN);
    }
  }

  newestIsProvisional() {
    const last = this.length - 1;
    return last > 0 && this.best[last] === this.best[last - 1] && Object.is(this.bound[last], this.bound[last - 1]);
  }

  dropNewest() {
    for (const column of [this.evaluations, this.seconds, this.best, this.bound]) column.pop();
  }

  /** What was known after so many evaluations. */
  rowAt(evaluations) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.evaluations[middle] <= evaluations) low = middle + 1;
      else high = middle;
    }
    const at = low - 1;
    if (at < 0) return null;
    return { evaluations: this.evaluations[at], seconds: this.seconds[at], best: this.best[at], bound: this.bound[at] };
  }
}

/** The first series is the one that is watched; it must stand out in the dark, too. */
export function seriesColor(index, theme) {
  if (index > 0) return CATEGORIES[index % CATEGORIES.length];
  return isDark(theme.surface) ? SKY : BLUE;
}

function isDark(color) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(color)?.[1];
  if (!hex) return false;
  const wide = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  return parseInt(wide.slice(2, 4), 16) < 128;
}
