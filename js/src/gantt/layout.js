// Where rows and times are on the canvas.

const AXIS = 26;
const TOP = 6;
const RIGHT = 12;
const WIDEST_LABELS = 170;

/**
 * `span` is the visible [from, to] in seconds. With measured bars each row is split in two halves,
 * and each half into as many lanes as its kinds that overlap need.
 */
export function layout(context, width, height, rows, span, split, lanes) {
  const widest = Math.max(24, ...rows.map((label) => context.measureText(label).width));
  const left = Math.min(WIDEST_LABELS, Math.ceil(widest) + 16);
  const right = width - RIGHT;
  const bottom = height - AXIS;
  const rowHeight = (bottom - TOP) / Math.max(1, rows.length);
  const gap = rowHeight > 14 ? 3 : rowHeight > 5 ? 1 : 0;
  const [from, to] = span;
  const scale = (right - left) / (to - from || 1);
  const halfHeight = (rowHeight - gap) / (split ? 2 : 1);
  return {
    left, right, top: TOP, bottom, rowHeight, from, to, scale,
    x: (time) => left + (time - from) * scale,
    time: (x) => from + (x - left) / scale,
    /** Top and height of a kind's bars in a row's predicted (0) or measured (1) half. */
    band(row, half, kind) {
      const laneHeight = halfHeight / lanes.count(kind);
      const top = TOP + row * rowHeight + gap / 2 + half * halfHeight + lanes.of(kind) * laneHeight;
      return [top, Math.max(1, laneHeight - (laneHeight > 6 ? 1 : 0))];
    },
    /** The middle of a row's predicted half. */
    middle: (row) => TOP + row * rowHeight + gap / 2 + halfHeight / 2,
    /** Which row, half and lane is at a height. */
    under(y) {
      const row = Math.floor((y - TOP) / rowHeight);
      if (row < 0 || row >= rows.length) return null;
      const down = (y - TOP - row * rowHeight - gap / 2) / halfHeight;
      const half = split && down >= 1 ? 1 : 0;
      const count = lanes.countIn(row);
      return { row, half, lane: Math.min(count - 1, Math.max(0, Math.floor((down - half) * count))) };
    },
  };
}
