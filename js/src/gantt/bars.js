// Bars by row and kind. Kinds that overlap in time within a row, as a send does with the next
// forward, get lanes of their own, the same in every row; kinds that take turns share one.

const OVERLAP = 0.05; // share of the shorter bar; less is rounding or the jitter of a clock

export class Bars {
  rows = []; // of Map: kind -> Strip
  count = 0;
  first = Infinity;
  last = -Infinity;
  overlapping = new Set(); // "low,high" of two kinds
  together = new Set(); // the same for kinds that share a row

  /** Columns of equal length; of one kind and row, usually but not always in order of start. */
  append({ start, end, row, kind, microbatch, stage }) {
    const late = new Set();
    for (let bar = 0; bar < start.length; bar++) {
      const strips = this.rowAt(row[bar]);
      if (!strips.has(kind[bar])) this.begin(strips, kind[bar]);
      const strip = strips.get(kind[bar]);
      if (start[bar] < strip.start[strip.length - 1]) late.add(strip);
      strip.push(start[bar], end[bar], microbatch[bar], stage[bar], this.count + bar);
      this.noteOverlaps(strips, kind[bar], start[bar], end[bar]);
      if (start[bar] < this.first) this.first = start[bar];
      if (end[bar] > this.last) this.last = end[bar];
    }
    this.count += start.length;
    for (const strip of late) strip.sort();
  }

  rowAt(row) {
    while (this.rows.length <= row) this.rows.push(new Map());
    return this.rows[row];
  }

  begin(strips, kind) {
    for (const other of strips.keys()) this.together.add(pair(kind, other));
    strips.set(kind, new Strip());
  }

  noteOverlaps(strips, kind, start, end) {
    for (const [other, strip] of strips) {
      if (other === kind) continue;
      const last = strip.length - 1;
      const shared = Math.min(end, strip.end[last]) - Math.max(start, strip.start[last]);
      if (shared > OVERLAP * Math.min(end - start, strip.end[last] - strip.start[last]))
        this.overlapping.add(pair(kind, other));
    }
  }

  /** Everything known about a bar; `id` counts bars in the order in which they came. */
  bar(row, kind, index) {
    const { start, end, microbatch, stage, id } = this.rows[row].get(kind);
    return { kind, start: start[index], end: end[index], microbatch: microbatch[index], stage: stage[index], id: id[index] };
  }

  has(kind) { return this.rows.some((strips) => strips.has(kind)); }
}

const pair = (one, other) => [Math.min(one, other), Math.max(one, other)].join();

/** The bars of one kind in one row, in order of start; messages to several others may overlap. */
class Strip {
  start = [];
  end = [];
  reach = []; // the latest end so far
  microbatch = [];
  stage = [];
  id = [];

  get length() { return this.start.length; }

  push(start, end, microbatch, stage, id) {
    this.reach.push(this.length ? Math.max(this.reach[this.length - 1], end) : end);
    this.start.push(start);
    this.end.push(end);
    this.microbatch.push(microbatch);
    this.stage.push(stage);
    this.id.push(id);
  }

  sort() {
    const order = this.start.map((_, index) => index).sort((one, other) => this.start[one] - this.start[other]);
    for (const column of ["start", "end", "microbatch", "stage", "id"]) this[column] = order.map((index) => this[column][index]);
    let latest = -Infinity;
    this.reach = this.end.map((end) => (latest = Math.max(latest, end)));
  }

  /** The first bar that ends at or after a time. */
  indexAt(time) { return firstAtLeast(this.reach, time); }

  /** The bar that began last of those under a time; -1 for none. */
  under(time, slack) {
    let found = -1;
    for (let index = this.indexAt(time - slack); index < this.length && this.start[index] <= time + slack; index++)
      if (this.end[index] >= time - slack) found = index;
    return found;
  }
}

/** Where the first value at or above another is, in a column that never falls. */
export function firstAtLeast(column, value) {
  let [low, high] = [0, column.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * kind -> lane and, for kinds that meet in a row, how many lanes these rows need. Each kind is in the
 * first lane where it overlaps nobody.
 */
export function lanesOf(nKinds, ...charts) {
  const any = (which, a, b) => charts.some((bars) => bars[which].has(pair(a, b)));
  const [lanes, families] = [[], []]; // a family: kinds that share rows
  for (let kind = 0; kind < nKinds; kind++) {
    let lane = 0;
    while (lanes.some((taken, other) => taken === lane && any("overlapping", kind, other))) lane++;
    lanes.push(lane);
    const mine = families.filter((family) => family.some((other) => any("together", kind, other)));
    const joined = [...mine.flat(), kind];
    families.splice(0, families.length, ...families.filter((family) => !mine.includes(family)), joined);
  }
  const counts = [];
  for (const family of families)
    for (const kind of family) counts[kind] = 1 + Math.max(...family.map((other) => lanes[other]));
  return {
    of: (kind) => lanes[kind] ?? 0,
    count: (kind) => counts[kind] ?? 1,
    /** In a row of which any bar is known. */
    countIn: (row) => Math.max(1, ...charts.flatMap((bars) => [...(bars.rows[row]?.keys() ?? [])].map((kind) => counts[kind] ?? 1))),
  };
}

/** The bar of a row and lane under a time, or null. */
export function barUnder(bars, row, lane, lanes, time, slack) {
  for (const [kind, strip] of bars.rows[row] ?? []) {
    if (lanes.of(kind) !== lane) continue;
    const index = strip.under(time, slack);
    if (index >= 0) return bars.bar(row, kind, index);
  }
  return null;
}

/** The bar of the same row for the same action: same kind, stage and microbatch, nearest in time. */
export function counterpart(bars, row, { kind, microbatch, stage, start }) {
  const strip = bars.rows[row]?.get(kind);
  let nearest = -1;
  for (let index = 0; index < (strip?.length ?? 0); index++) {
    if (strip.microbatch[index] !== microbatch || strip.stage[index] !== stage) continue;
    if (nearest < 0 || Math.abs(strip.start[index] - start) < Math.abs(strip.start[nearest] - start)) nearest = index;
  }
  return nearest < 0 ? null : bars.bar(row, kind, nearest);
}
