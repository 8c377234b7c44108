// Bars in columns, by row and kind. Kinds that overlap in time within a row, as a send does with the
// next forward, get lanes of their own, the same in every row; kinds that take turns share one.
/** @import { ArrayType, Bar, Columns, GhostColumns, Lanes, NumberArray, Types } from "../types.d.ts" */

const OVERLAP = 0.05; // share of the shorter bar; less is rounding or the jitter of a clock

export const COLUMNS = {
  start: Float32Array,
  end: Float32Array,
  row: Uint16Array,
  kind: Uint8Array,
  microbatch: Int32Array,
  stage: Uint16Array,
};
/** Of measured bars only: by how many seconds a bar ends after its counterpart; not a number where it has none. */
export const LATE = { late: Float32Array };

export class Bars {
  /**
   * Columns of equal length, in any order.
   * @param {GhostColumns} columns
   */
  constructor(columns) {
    this.given = columns;
    const { start, end, row, kind } = columns;
    this.count = start.length;
    this.first = Infinity;
    this.last = -Infinity;
    this.nRows = 0;
    this.nKinds = 0;
    for (let bar = 0; bar < this.count; bar++) {
      if (row[bar] >= this.nRows) this.nRows = row[bar] + 1;
      if (kind[bar] >= this.nKinds) this.nKinds = kind[bar] + 1;
      if (start[bar] < this.first) this.first = start[bar];
      if (end[bar] > this.last) this.last = end[bar];
    }
    this.together = new Uint8Array(0);
    this.overlapping = new Uint8Array(0);
    this.begins = new Uint32Array(this.nRows * this.nKinds + 1); // of the strip of (row, kind)
    this.id = sortedByStrip(columns, this.nKinds, this.begins);
    this.start = gathered(start, this.id);
    this.end = gathered(end, this.id);
    this.row = gathered(row, this.id);
    this.kind = gathered(kind, this.id);
    this.microbatch = gathered(columns.microbatch ?? new Int32Array(0), this.id);
    this.stage = gathered(columns.stage ?? new Uint16Array(0), this.id);
    this.late = columns.late && gathered(columns.late, this.id);
    this.reach = new Float32Array(this.count); // the latest end of a strip so far
    for (let strip = 0; strip + 1 < this.begins.length; strip++) {
      let latest = -Infinity;
      for (let at = this.begins[strip]; at < this.begins[strip + 1]; at++) this.reach[at] = latest = Math.max(latest, this.end[at]);
    }
    this.noteMeetings();
  }

  /**
   * Which kinds share rows, and which of them overlap in time.
   * @type {() => void}
   */
  noteMeetings() {
    const n = this.nKinds;
    this.together = new Uint8Array(n * n);
    this.overlapping = new Uint8Array(n * n);
    for (let row = 0; row < this.nRows; row++) {
      const here = [];
      for (let kind = 0; kind < n; kind++) if (this.begins[row * n + kind] < this.begins[row * n + kind + 1]) here.push(kind);
      for (const [position, one] of here.entries()) {
        for (const other of here.slice(position + 1)) {
          this.together[one * n + other] = this.together[other * n + one] = 1;
          if (this.overlapping[one * n + other] || !this.overlap(row * n + one, row * n + other)) continue;
          this.overlapping[one * n + other] = this.overlapping[other * n + one] = 1;
        }
      }
    }
  }

  /** @type {(one: number, other: number) => boolean} */
  overlap(one, other) {
    const { start, end, begins } = this;
    for (let a = begins[one], b = begins[other]; a < begins[one + 1] && b < begins[other + 1];) {
      const shared = Math.min(end[a], end[b]) - Math.max(start[a], start[b]);
      if (shared > 0 && shared > OVERLAP * Math.min(end[a] - start[a], end[b] - start[b])) return true;
      if (end[a] < end[b]) a++;
      else b++;
    }
    return false;
  }

  /**
   * Where the bars of a kind in a row begin and end in the columns; equal where there are none.
   * @type {(row: number, kind: number) => [number, number]}
   */
  strip(row, kind) {
    if (row >= this.nRows || kind >= this.nKinds) return [0, 0];
    const at = row * this.nKinds + kind;
    return [this.begins[at], this.begins[at + 1]];
  }

  /**
   * Everything known about one bar; `id` counts bars in the order in which they came, `turn` those of its action.
   * @type {(at: number) => Bar}
   */
  bar(at) {
    const { start, end, row, kind, microbatch, stage, id, late } = this;
    return {
      row: row[at],
      kind: kind[at],
      start: start[at],
      end: end[at],
      microbatch: microbatch[at],
      stage: stage[at],
      id: id[at],
      late: late ? late[at] : NaN,
      turn: this.turn(at),
    };
  }

  /**
   * How many bars of the same action begin before.
   * @type {(at: number) => number}
   */
  turn(at) {
    const [begin] = this.strip(this.row[at], this.kind[at]);
    let before = 0;
    for (let other = begin; other < at; other++) if (this.microbatch[other] === this.microbatch[at] && this.stage[other] === this.stage[at]) before++;
    return before;
  }

  /**
   * The bar of a row and kind that began last of those under a time; -1 for none.
   * @type {(row: number, kind: number, time: number, slack: number) => number}
   */
  under(row, kind, time, slack) {
    const [begin, end] = this.strip(row, kind);
    let found = -1;
    for (let at = firstAtLeast(this.reach, time - slack, begin, end); at < end && this.start[at] <= time + slack; at++)
      if (this.end[at] >= time - slack) found = at;
    return found;
  }

  /** @type {(kind: number) => boolean} */
  has(kind) {
    for (let row = 0; row < this.nRows; row++) {
      const [begin, end] = this.strip(row, kind);
      if (begin < end) return true;
    }
    return false;
  }
}

export const NO_BARS = new Bars({ start: new Float32Array(0), end: new Float32Array(0), row: new Uint16Array(0), kind: new Uint8Array(0) });

/**
 * Where each bar comes from: by row and kind (fills `begins`), then by start.
 * @type {(columns: GhostColumns, nKinds: number, begins: Uint32Array) => Uint32Array}
 */
function sortedByStrip({ start, row, kind }, nKinds, begins) {
  const n = start.length;
  for (let bar = 0; bar < n; bar++) begins[row[bar] * nKinds + kind[bar] + 1]++;
  for (let strip = 1; strip < begins.length; strip++) begins[strip] += begins[strip - 1];
  const next = begins.slice();
  const order = new Uint32Array(n);
  const late = new Set(); // strips whose bars did not come in order
  for (let bar = 0; bar < n; bar++) {
    const strip = row[bar] * nKinds + kind[bar];
    const at = next[strip]++;
    if (at > begins[strip] && start[order[at - 1]] > start[bar]) late.add(strip);
    order[at] = bar;
  }
  for (const strip of late) order.subarray(begins[strip], begins[strip + 1]).sort((one, other) => start[one] - start[other] || one - other);
  return order;
}

/** @type {<C extends NumberArray | NonNullable<Columns[keyof Columns]>>(column: C, order: Uint32Array) => C} */
function gathered(column, order) {
  const moved = /** @type {any} any: of the column's own type, which TypeScript does not follow through a constructor */ (
    new /** @type {any} */ (column).constructor(order.length)
  );
  for (let at = 0; at < order.length; at++) moved[at] = column[order[at]];
  return moved;
}

/**
 * Concatenates columns.
 * @type {<T extends Types>(parts: { [K in keyof T]: InstanceType<T[K]> }[], types: T) => { [K in keyof T]: InstanceType<T[K]> }}
 */
export function joined(parts, types) {
  return /** @type {any} any: name by name of the types that are given */ (
    Object.fromEntries(
      Object.entries(types).map(([name, Type]) => {
        const whole = new Type(parts.reduce((sum, part) => sum + part[name].length, 0));
        let at = 0;
        for (const part of parts) {
          whole.set(part[name], at);
          at += part[name].length;
        }
        return [name, whole];
      }),
    )
  );
}

/**
 * Where the first value at or above another is, in a stretch of a column that never falls.
 * @type {(column: ArrayLike<number>, value: number, begin?: number, end?: number) => number}
 */
export function firstAtLeast(column, value, begin = 0, end = column.length) {
  let [low, high] = [begin, end];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export const FULL = -1; // the lane of kinds that overlap no other: the whole height of a row

/**
 * kind -> lane and, for kinds that meet in a row, how many lanes these rows need. Each kind is in the
 * first lane where it overlaps nobody, or fills the row where it overlaps none at all, or `fills` says so.
 * @type {(nKinds: number, fills: boolean[], ...charts: Bars[]) => Lanes}
 */
export function lanesOf(nKinds, fills, ...charts) {
  /** @type {(which: "overlapping" | "together", a: number, b: number) => boolean} */
  const any = (which, a, b) => charts.some((bars) => a < bars.nKinds && b < bars.nKinds && Boolean(bars[which][a * bars.nKinds + b]));
  /** @type {number[]} */
  const lanes = [];
  /** @type {number[][]} */
  const families = []; // a family: kinds that share rows
  for (let kind = 0; kind < nKinds; kind++) {
    let lane = 0;
    while (lanes.some((taken, other) => taken === lane && any("overlapping", kind, other))) lane++;
    lanes.push(fills[kind] ? FULL : lane);
    const mine = families.filter((family) => family.some((other) => any("together", kind, other)));
    const merged = [...mine.flat(), kind];
    families.splice(0, families.length, ...families.filter((family) => !mine.includes(family)), merged);
  }
  /** @type {number[]} */
  const counts = [];
  for (const family of families) for (const kind of family) counts[kind] = 1 + Math.max(0, ...family.map((other) => lanes[other]));
  for (let kind = 0; kind < nKinds; kind++) {
    if (counts[kind] === 1) lanes[kind] = 0;
    else if (!lanes.some((_, other) => other !== kind && any("overlapping", kind, other) && !fills[other])) lanes[kind] = FULL;
  }
  /** @type {number[]} */
  const inRow = []; // how many lanes a row has
  for (const bars of charts)
    for (let row = 0; row < bars.nRows; row++)
      for (let kind = 0; kind < Math.min(nKinds, bars.nKinds); kind++)
        if (bars.strip(row, kind)[0] < bars.strip(row, kind)[1]) inRow[row] = Math.max(inRow[row] ?? 1, counts[kind]);
  return { of: (kind) => lanes[kind] ?? 0, count: (kind) => counts[kind] ?? 1, countIn: (row) => inRow[row] ?? 1 };
}

/**
 * The bar of a row and lane under a time, or null.
 * @type {(bars: Bars, row: number, lane: number, lanes: Lanes, time: number, slack: number) => Bar | null}
 */
export function barUnder(bars, row, lane, lanes, time, slack) {
  for (let kind = 0; kind < bars.nKinds; kind++) {
    if (lanes.of(kind) !== lane && lanes.of(kind) !== FULL) continue;
    const at = bars.under(row, kind, time, slack);
    if (at >= 0) return bars.bar(at);
  }
  return null;
}

/**
 * The bar of the same row for the same action: same kind, stage and microbatch; of several the first goes with the first.
 * @type {(bars: Bars, bar: Pick<Bar, "row" | "kind" | "microbatch" | "stage" | "turn">) => Bar | null}
 */
export function counterpart(bars, { row, kind, microbatch, stage, turn }) {
  const [begin, end] = bars.strip(row, kind);
  for (let at = begin, left = turn; at < end; at++) if (bars.microbatch[at] === microbatch && bars.stage[at] === stage && left-- === 0) return bars.bar(at);
  return null;
}
