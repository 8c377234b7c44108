// Where rows and times are on the canvas.

const AXIS = 26;
const TOP = 6;
const RIGHT = 12;
const WIDEST_LABELS = 170;

/**
 * `span` is the visible [from, to] in seconds. With measured bars each row is split in two halves,
 * and each half into as many lanes as kinds that overlap need.
 */
export function layout(context, width, height, rows, span, split, nLanes) {
  const widest = Math.max(24, ...rows.map((label) => context.measureText(label).width));
  const left = Math.min(WIDEST_LABELS, Math.ceil(widest) + 16);
  const right = width - RIGHT;
  const bottom = height - AXIS;
  const rowHeight = (bottom - TOP) / Math.max(1, rows.length);
  const gap = rowHeight > 14 ? 3 : rowHeight > 5 ? 1 : 0;
  const [from, to] = span;
  const scale = (right - left) / (to - from || 1);
  const halfHeight = (rowHeight - gap) / (split ? 2 : 1);
  const laneHeight = halfHeight / nLanes;
  return {
    left, right, top: TOP, bottom, rowHeight, from, to, scale,
    x: (time) => left + (time - from) * scale,
    time: (x) => from + (x - left) / scale,
    /** Top and height of a lane in a row's predicted (0) or measured (1) half. */
    band: (row, half, lane) => [
      TOP + row * rowHeight + gap / 2 + half * halfHeight + lane * laneHeight,
      Math.max(1, laneHeight - (laneHeight > 6 ? 1 : 0)),
    ],
    /** Which row, half and lane is at a height. */
    under(y) {
      const row = Math.floor((y - TOP) / rowHeight);
      if (row < 0 || row >= rows.length) return null;
      const down = (y - TOP - row * rowHeight - gap / 2) / halfHeight;
      const half = split && down >= 1 ? 1 : 0;
      const lane = Math.floor((down - half) * nLanes);
      return { row, half, lane: Math.min(nLanes - 1, Math.max(0, lane)) };
    },
  };
}
