// Bars as pixels. Each lane of a row is one line of pixels, computed once and copied down; what is too
// thin for a rectangle adds its share to the pixels it touches. Time goes with the number of bars in
// sight plus the number of pixels, so that a hundred thousand bars are repainted at every frame.
import { GREEN, VERMILLION } from "shared/theme.js";
import { firstAtLeast } from "./bars.js";

const WIDE = 4; // pixels: from here on a bar has corners, an outline and a gap to the next
const FAINTEST = 0.7; // of a pixel that a bar touches at all
const NUMBERED = 15; // pixels a bar needs to carry its microbatch number
const [LOWEST_NUMBERED, LOWEST_OUTLINED] = [11, 5]; // pixels of height

/** "#rrggbb" as a pixel. */
export const pixel = (hex) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0; // little-endian, as everywhere
};
const [LATER, EARLIER] = [pixel(VERMILLION), pixel(GREEN)];

/** Which of a kind's shades a stage has: the first for a device's first stage, and so on. */
export const shadeOf = (stage, nShades, perPipeline) =>
  perPipeline ? Math.min(nShades - 1, Math.floor(stage / perPipeline)) : 0;

export class Raster {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
  }

  resize(width, height) {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (this.image?.width === this.width && this.image.height === this.height) {
      this.pixels.fill(0);
      return;
    }
    [this.canvas.width, this.canvas.height] = [this.width, this.height];
    this.image = this.context.createImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    for (const name of ["red", "green", "blue", "share"]) this[name] = new Float32Array(this.width);
    for (const name of ["body", "rim", "marks"]) this[name] = new Uint32Array(this.width);
  }

  /**
   * Paints sides of `{ bars, half, outline, threshold }`: bars that end more than `threshold` seconds after
   * their counterpart are marked at the foot, those that end as much before it at the head. Returns what
   * is to be written on bars: x, y, width, height, microbatch, kind, shade of each, in pixels of the page.
   */
  paint(place, lanes, kinds, perPipeline, sides, ratio) {
    this.resize(Math.round((place.right - place.left) * ratio), Math.round((place.rowsBottom - place.top) * ratio));
    const inks = kinds.map(({ shades, edge }) => ({ shades: shades.map(pixel), edge: edge ? pixel(edge) : 0 }));
    const numbers = [];
    for (const row of place.shown) {
      for (const side of sides) {
        if (row >= side.bars.nRows) continue;
        for (let lane = 0; lane < lanes.countIn(row); lane++) this.paintLane(row, lane, side, place, lanes, inks, perPipeline, ratio, numbers);
      }
    }
    this.context.putImageData(this.image, 0, 0);
    return numbers;
  }

  paintLane(row, lane, { bars, half, outline, threshold }, place, lanes, inks, perPipeline, ratio, numbers) {
    const { width, body, rim, marks, red, green, blue, share } = this;
    const { start, end, reach, stage, microbatch, late } = bars;
    const scale = place.scale * ratio;
    const [wide, gap, line] = [WIDE * ratio, Math.max(1, Math.round(ratio)), Math.max(1, Math.round(ratio))];
    const numbered = NUMBERED * ratio;
    const outer = outline ? pixel(outline) : 0;
    const spans = []; // of outlined bars: from, to, colour
    let [top, height, some, marked, thinFrom, thinTo] = [0, 0, false, false, width, 0];
    for (let kind = 0; kind < Math.min(bars.nKinds, inks.length); kind++) {
      if (lanes.of(kind) !== lane) continue;
      const [begin, stop] = bars.strip(row, kind);
      let at = firstAtLeast(reach, place.from, begin, stop);
      if (at >= stop || start[at] > place.to) continue;
      if (!some) {
        some = true;
        [top, height] = place.band(row, half, kind);
        body.fill(0);
        share.fill(0);
        red.fill(0);
        green.fill(0);
        blue.fill(0);
        if (late) marks.fill(0);
      }
      const { shades, edge } = inks[kind];
      const ring = height >= LOWEST_OUTLINED ? outer || edge : 0;
      const digits = height >= LOWEST_NUMBERED;
      for (; at < stop && start[at] <= place.to; at++) {
        const [from, to] = [(start[at] - place.from) * scale, (end[at] - place.from) * scale];
        if (to < 0) continue;
        const shade = shadeOf(stage[at], shades.length, perPipeline);
        const color = shades[shade];
        let [left, right] = [0, 0];
        if (to - from >= wide) {
          left = Math.max(0, Math.round(from));
          right = Math.min(width, Math.round(to) - (to - from > 1.5 * wide ? gap : 0)); // so that equal neighbours can be told apart
          if (right <= left) continue;
          body.fill(color, left, right);
          if (ring) spans.push(left, right, ring);
          if (digits && right - left >= numbered && microbatch[at] >= 0)
            numbers.push(place.left + left / ratio, top, (right - left) / ratio, height, microbatch[at], kind, shade);
        } else {
          [left, right] = [Math.max(0, Math.min(width - 1, Math.floor(from))), Math.min(width, Math.max(Math.ceil(to), Math.floor(from) + 1))];
          const [r, g, b] = [color & 255, (color >> 8) & 255, (color >> 16) & 255];
          for (let x = left; x < right; x++) {
            const part = Math.max(0.02, Math.min(to, x + 1) - Math.max(from, x));
            share[x] += part;
            red[x] += part * r;
            green[x] += part * g;
            blue[x] += part * b;
          }
          if (left < thinFrom) thinFrom = left;
          if (right > thinTo) thinTo = right;
        }
        if (late && Math.abs(late[at]) > threshold) {
          marks.fill(late[at] > 0 ? LATER : EARLIER, left, Math.max(right, left + 1));
          marked = true;
        }
      }
    }
    if (!some) return;
    for (let x = thinFrom; x < thinTo; x++) {
      if (body[x] || !share[x]) continue;
      const alpha = Math.round(255 * Math.min(1, Math.max(FAINTEST, share[x])));
      body[x] = ((alpha << 24) | ((blue[x] / share[x]) << 16) | ((green[x] / share[x]) << 8) | (red[x] / share[x])) >>> 0;
    }
    const [first, last] = [Math.round((top - place.top) * ratio), Math.round((top + height - place.top) * ratio)];
    if (spans.length) {
      rim.set(body);
      for (let at = 0; at < spans.length; at += 3) {
        const [left, right, color] = [spans[at], spans[at + 1], spans[at + 2]];
        rim.fill(color, left, right);
        body.fill(color, left, Math.min(right, left + line));
        body.fill(color, Math.max(left, right - line), right);
      }
    }
    this.copy(body, first, last);
    if (spans.length) {
      this.copy(rim, first, Math.min(last, first + line));
      this.copy(rim, Math.max(first, last - line), last);
    }
    if (marked) this.mark(first, last, Math.max(1, Math.round((height > 6 ? 2.5 : 1) * ratio)));
  }

  /** One line of pixels into the rows of the image from `first` up to `last`. */
  copy(line, first, last) {
    const { width, pixels } = this;
    const end = Math.min(last, this.height);
    if (first < 0 || first >= end) return;
    pixels.set(line, first * width);
    for (let y = first + 1; y < end; y++) pixels.copyWithin(y * width, first * width, (first + 1) * width);
  }

  mark(first, last, thickness) {
    const { width, pixels, marks } = this;
    for (let x = 0; x < width; x++) {
      if (!marks[x]) continue;
      const from = marks[x] === LATER ? Math.max(first, last - thickness) : first;
      for (let y = from; y < Math.min(this.height, from + thickness); y++) pixels[y * width + x] = marks[x];
    }
  }
}
