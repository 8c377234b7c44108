// Where rows, strips and times are on the canvas.

export const AXIS = 26;
const EDGE = 6;
const MARKS = 20; // room for the labels of the iterations' ends
const RIGHT = 14;
const WIDEST_LABELS = 180;
const LABELS_SHARE = 0.35; // of a narrow page that labels take at most
const HEADING = 17;
const TWO_HALVES = [[16, 10], [32, 6], [48, 3]]; // up to so many rows, pixels that the second half adds to each
export const STRIP = 58;
const STRIP_GAP = 6;

/** Which rows are drawn, in their order, and where groups of them begin; rows that are left out go with their device's first. */
export function arrange({ nRows, order, groups, devices }) {
  const shown = order.length ? order.filter((row) => row < nRows) : Array.from({ length: nRows }, (_, row) => row);
  const slot = new Map(shown.map((row, at) => [row, at]));
  const ofDevice = new Map();
  for (const row of shown) if (devices[row] !== undefined && !ofDevice.has(devices[row])) ofDevice.set(devices[row], slot.get(row));
  const begins = new Map(); // slot -> heading, "" for a line only
  let at = 0;
  for (const { label, count } of groups) {
    begins.set(at, label ?? "");
    at += count;
  }
  return { shown, slotOf: (row) => slot.get(row) ?? ofDevice.get(devices[row]) ?? 0, isShown: (row) => slot.has(row), begins };
}

/** Pixels that headings, strips and second halves take on top of the rows. */
export function extraHeight(arranged, nStrips, marked, split) {
  const nRows = arranged.shown.length;
  const halves = split ? nRows * (TWO_HALVES.find(([most]) => nRows <= most)?.[1] ?? 0) : 0;
  const headings = [...arranged.begins.values()].filter(Boolean).length;
  return headings * HEADING + nStrips * (STRIP + STRIP_GAP) + (marked ? MARKS : 0) + halves;
}

/**
 * `span` is the visible [from, to] in seconds. With a second trace each row is split in two halves, and each
 * half into as many lanes as its kinds that overlap need.
 */
export function layout({ width, height, labelWidth, span, split, lanes, arranged, nStrips, marked }) {
  const left = Math.min(WIDEST_LABELS, Math.round(LABELS_SHARE * width), Math.ceil(Math.max(nStrips ? 66 : 24, labelWidth)) + 16);
  const right = Math.max(left + 40, width - RIGHT);
  const top = marked ? MARKS : EDGE;
  const bottom = height - AXIS;
  const rowsBottom = bottom - nStrips * (STRIP + STRIP_GAP);
  const { shown, slotOf, isShown, begins } = arranged;
  const nHeadings = [...begins.values()].filter(Boolean).length;
  const rowHeight = Math.max(2, (rowsBottom - top - nHeadings * HEADING) / Math.max(1, shown.length));
  const tops = new Float64Array(shown.length); // of each slot
  let y = top;
  for (let slot = 0; slot < shown.length; slot++) {
    if (begins.get(slot)) y += HEADING;
    tops[slot] = y;
    y += rowHeight;
  }
  const gap = rowHeight > 14 ? 3 : rowHeight > 5 ? 1 : 0;
  const [from, to] = span;
  const scale = (right - left) / (to - from || 1);
  const halfHeight = (rowHeight - gap) / (split ? 2 : 1);
  const rowTop = (row) => tops[slotOf(row)] ?? top;
  return {
    left, right, top, bottom, rowsBottom, rowHeight, from, to, scale, shown, isShown, begins, headingHeight: HEADING,
    x: (time) => left + (time - from) * scale,
    time: (x) => from + (x - left) / scale,
    rowTop,
    slotTop: (slot) => tops[slot],
    /** Top and bottom of a strip below the rows. */
    strip: (number) => {
      const begin = rowsBottom + STRIP_GAP + number * (STRIP + STRIP_GAP);
      return [begin, begin + STRIP];
    },
    /** Top and height of a kind's bars in a row's upper (0) or lower (1) half. */
    band(row, half, kind) {
      const laneHeight = halfHeight / lanes.count(kind);
      const begin = rowTop(row) + gap / 2 + half * halfHeight + lanes.of(kind) * laneHeight;
      return [begin, Math.max(1, laneHeight - (laneHeight > 6 ? 1 : 0))];
    },
    /** The middle of a row's upper half. */
    middle: (row) => rowTop(row) + gap / 2 + halfHeight / 2,
    /** Which row, half and lane is at a height. */
    under(height) {
      const slot = tops.findLastIndex((begin) => begin <= height);
      if (slot < 0 || height > tops[slot] + rowHeight) return null;
      const row = shown[slot];
      const down = (height - tops[slot] - gap / 2) / halfHeight;
      const half = split && down >= 1 ? 1 : 0;
      const count = lanes.countIn(row);
      return { row, half, lane: Math.min(count - 1, Math.max(0, Math.floor((down - half) * count))) };
    },
  };
}
