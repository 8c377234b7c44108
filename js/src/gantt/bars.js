// Bars by row and kind. Kinds that overlap in time within a row, as a send does with the next
// forward, get lanes of their own, the same in every row; kinds that take turns share one.

const OVERLAP = 0.05; // share of the shorter bar; less is rounding or the jitter of a clock

export class Bars {
  rows = []; // of Map: kind -> Strip
  count = 0;
  first = Infinity;
  last = -Infinity;
  overlapping = new Set(); // "low,high" of two kinds

  /** Columns of equal length; of one kind and row, usually but not always in order of start. */
  append({ start, end, row, kind, microbatch }) {
    const late = new Set();
    for (let bar = 0; bar < start.length; bar++) {
      const strips = this.rowAt(row[bar]);
      if (!strips.has(kind[bar])) strips.set(kind[bar], new Strip());
      const strip = strips.get(kind[bar]);
      if (start[bar] < strip.start[strip.length - 1]) late.add(strip);
      strip.push(start[bar], end[bar], microbatch[bar]);
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

  noteOverlaps(strips, kind, start, end) {
    for (const [other, strip] of strips) {
      if (other === kind) continue;
      const last = strip.length - 1;
      const shared = Math.min(end, strip.end[last]) - Math.max(start, strip.start[last]);
      if (shared > OVERLAP * Math.min(end - start, strip.end[last] - strip.start[last]))
        this.overlapping.add([Math.min(kind, other), Math.max(kind, other)].join());
    }
  }

  bar(row, kind, index) {
    const strip = this.rows[row].get(kind);
    return { kind, start: strip.start[index], end: strip.end[index], microbatch: strip.microbatch[index] };
  }
}

/** The bars of one kind in one row, in order of start. */
class Strip {
  start = [];
  end = [];
  microbatch = [];

  get length() { return this.start.length; }

  push(start, end, microbatch) {
    this.start.push(start);
    this.end.push(end);
    this.microbatch.push(microbatch);
  }

  sort() {
    const order = this.start.map((_, index) => index).sort((one, other) => this.start[one] - this.start[other]);
    for (const column of ["start", "end", "microbatch"]) this[column] = order.map((index) => this[column][index]);
  }

  /** The first bar that ends at or after a time. */
  indexAt(time) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** kind -> lane: each kind in the first lane where it overlaps nobody. */
export function lanesOf(nKinds, ...charts) {
  const overlap = (a, b) => charts.some((bars) => bars.overlapping.has([Math.min(a, b), Math.max(a, b)].join()));
  const lanes = [];
  for (let kind = 0; kind < nKinds; kind++) {
    let lane = 0;
    while (lanes.some((taken, other) => taken === lane && overlap(kind, other))) lane++;
    lanes.push(lane);
  }
  return { of: (kind) => lanes[kind] ?? 0, count: Math.max(1, ...lanes.map((lane) => lane + 1)) };
}

/** The bar of a row and lane under a time, or null. */
export function barUnder(bars, row, lane, lanes, time, slack) {
  for (const [kind, strip] of bars.rows[row] ?? []) {
    if (lanes.of(kind) !== lane) continue;
    const index = strip.indexAt(time - slack);
    if (index < strip.length && strip.start[index] <= time + slack) return bars.bar(row, kind, index);
  }
  return null;
}

/** The bar of the same row for the same action: same kind and microbatch, nearest in time. */
export function counterpart(bars, row, { kind, microbatch, start }) {
  const strip = bars.rows[row]?.get(kind);
  let nearest = -1;
  for (let index = 0; index < (strip?.length ?? 0); index++) {
    if (strip.microbatch[index] !== microbatch) continue;
    if (nearest < 0 || Math.abs(strip.start[index] - start) < Math.abs(strip.start[nearest] - start)) nearest = index;
  }
  return nearest < 0 ? null : bars.bar(row, kind, nearest);
}
