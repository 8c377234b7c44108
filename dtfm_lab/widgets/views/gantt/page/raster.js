// Bars as pixels. Each lane of a row is one line of pixels, computed once and copied down; what is too
// thin for a rectangle adds its share to the pixels it touches. Time goes with the number of bars in
// sight plus the number of pixels, so that a hundred thousand bars are repainted at every frame.
import { firstAtLeast, FULL } from "./bars.js";
import { densityOf, stackedAt } from "./density.js";
/** @import { Bars } from "./bars.js" */
/** @import { Lanes, RasterLooks, RasterPlace, Side, Thin } from "../types.d.ts" */

const WIDE = 4; // pixels: from here on a bar has corners and a gap to the next
const FAINTEST = 0.7; // of a pixel that a bar touches at all
const NUMBERED = 15; // pixels a bar needs to carry its microbatch number
const [LOWEST_NUMBERED, LOWEST_ROUNDED, LOWEST_STACKED] = [11, 9, 6]; // pixels of height
const [HATCH_PERIOD, HATCH_WIDTH, HATCH_ALPHA, LEAST_WAIT] = [7, 1.1, 0.5, 4]; // pixels
const CORNER = 0.35; // of a corner's pixel that a round bar leaves
const GHOST_ALPHA = 0.55;
const SEVERAL = 0xff; // a family that is none

/**
 * "#rrggbb" as a pixel.
 * @type {(hex: string) => number}
 */
export const pixel = (hex) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0; // little-endian, as everywhere
};
/** @type {(color: number, share: number) => number} */
const faded = (color, share) => ((Math.round((color >>> 24) * share) << 24) | (color & 0xffffff)) >>> 0;

/**
 * Which of a kind's shades a stage has: the first for a device's first stage, and so on.
 * @type {(stage: number, nShades: number, perPipeline: number) => number}
 */
export const shadeOf = (stage, nShades, perPipeline) => (perPipeline ? Math.min(nShades - 1, Math.floor(stage / perPipeline)) : 0);

export class Raster {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d", { willReadFrequently: true }));
    this.width = 0;
    this.height = 0;
    /** @type {ImageData | null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    this.share = new Float32Array(0);
    /** @type {Thin[]} of each kind, what bars of less than a few pixels cover: shares of pixels, and their colour */
    this.thin = [];
    this.body = new Uint32Array(0);
    this.rim = new Uint32Array(0);
    this.whole = new Uint32Array(0);
    this.wholeRim = new Uint32Array(0);
    this.family = new Uint8Array(0);
    this.begins = new Uint16Array(0); // thin bars of a lane that begin at each pixel
    /** @type {import("./density.js").Density | null} */
    this.density = null; // of the lane, where they are crowded
    /** @type {Uint32Array[]} */
    this.hatched = [];
    this.hasWaits = false;
    /** @type {RasterPlace} any: null until the first painting, which sets it before it is asked for */
    this.place = /** @type {any} */ (null);
    /** @type {Lanes} */
    this.lanes = /** @type {any} */ (null);
    this.perPipeline = 0;
    this.ratio = 1;
    this.scale = 1;
    /** @type {number[]} */
    this.numbers = [];
    /** @type {{ shades: number[], family: number }[]} */
    this.inks = [];
    /** @type {number[]} */
    this.families = [];
    this.lastFamily = SEVERAL;
    this.ghostInk = 0;
  }

  /** @type {(width: number, height: number) => void} */
  resize(width, height) {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (this.image?.width === this.width && this.image.height === this.height) {
      this.pixels.fill(0);
      return;
    }
    [this.canvas.width, this.canvas.height] = [this.width, this.height];
    const image = this.context.createImageData(this.width, this.height);
    this.image = image;
    this.pixels = new Uint32Array(image.data.buffer);
    this.share = new Float32Array(this.width);
    this.thin = [];
    for (const name of /** @type {const} */ (["body", "rim", "whole", "wholeRim"])) this[name] = new Uint32Array(this.width);
    this.family = new Uint8Array(this.width);
    this.begins = new Uint16Array(this.width);
    this.hatched = [];
  }

  /**
   * Paints `{ bars, ghost }`; `ghost` are bars drawn as a line under each lane. `looks` has `kinds`, each with `shades`
   * and `family`; `families`, a colour for each that is waited for; and `ink`. Returns what is to be written on bars:
   * x, y, width, height, microbatch, kind, shade of each, in pixels of the page.
   * @type {(place: RasterPlace, lanes: Lanes, looks: RasterLooks, perPipeline: number, side: Side, ratio: number) => number[]}
   */
  paint(place, lanes, looks, perPipeline, side, ratio) {
    this.resize(Math.round((place.right - place.left) * ratio), Math.round((place.rowsBottom - place.top) * ratio));
    Object.assign(this, { place, lanes, perPipeline, ratio, scale: place.scale * ratio, numbers: [] });
    this.inks = looks.kinds.map(({ shades, family }) => ({ shades: shades.map(pixel), family: family ?? SEVERAL }));
    this.families = (looks.families ?? []).map(pixel);
    this.lastFamily = looks.lastFamily ?? SEVERAL; // what a device waits for after its last bar
    this.ghostInk = looks.ink ? pixel(looks.ink) : 0;
    place.shown.forEach((_, slot) => {
      const begin = place.slotTop(slot);
      if (begin + place.heightOf(slot) < place.top || begin > place.rowsBottom) return;
      place.rowsIn(slot).forEach((row, index) => this.paintRow(slot, index, row, side));
    });
    if (this.image) this.context.putImageData(this.image, 0, 0);
    return this.numbers;
  }

  /** @type {(slot: number, index: number, row: number, side: Side) => void} */
  paintRow(slot, index, row, { bars, ghost }) {
    const { lanes, body, rim, whole, wholeRim } = this;
    const lane = this.place.lane(slot, index);
    if (row < bars.nRows) {
      const nLanes = lanes.countIn(row);
      /** @type {number[]} */
      const spans = []; // of wide bars: from, to
      const full = this.gather(slot, index, row, nLanes > 1 ? FULL : 0, bars, spans);
      this.finish(row, spans, bars, lane.height);
      if (nLanes === 1 || full) this.write(lane.top, lane.height, nLanes === 1);
      if (nLanes > 1) {
        whole.set(body);
        wholeRim.set(rim);
        for (let number = 0; number < nLanes; number++) {
          spans.length = 0;
          if (!this.gather(slot, index, row, number, bars, spans)) continue;
          const [top, height] = [lane.top + (number * lane.height) / nLanes, lane.height / nLanes - (number + 1 < nLanes ? 1 : 0)];
          this.finish(row, spans, bars, height);
          if (full)
            for (let x = 0; x < this.width; x++)
              if (!body[x]) {
                body[x] = whole[x];
                rim[x] = rim[x] || whole[x];
              }
          this.write(top, Math.max(1, height), false);
        }
      }
    }
    if (ghost && row < ghost.nRows) this.paintGhost(row, ghost, lane);
  }

  /**
   * The bars of a lane into `body`, what they are into `family`; whether there are any in sight.
   * @type {(slot: number, index: number, row: number, lane: number, bars: Bars, spans: number[]) => boolean}
   */
  gather(slot, index, row, lane, bars, spans) {
    const { width, body, family, begins, place, lanes, inks, perPipeline, ratio, scale, numbers } = this;
    const { start, end, reach, stage, microbatch } = bars;
    const [wide, gap] = [WIDE * ratio, Math.max(1, Math.round(ratio))];
    const numbered = NUMBERED * ratio;
    const firstNumber = numbers.length;
    /** @type {Thin[]} */
    const thins = [];
    let [top, height, thinFrom, thinTo] = [0, 0, width, 0];
    let some = false;
    body.fill(0);
    begins.fill(0);
    family.fill(SEVERAL);
    for (let kind = 0; kind < Math.min(bars.nKinds, inks.length); kind++) {
      if (lanes.of(kind) !== lane) continue;
      const [begin, stop] = bars.strip(row, kind);
      let at = firstAtLeast(reach, place.from, begin, stop);
      if (at >= stop || start[at] > place.to) continue;
      if (!some) {
        some = true;
        [top, height] = place.bandIn(slot, index, kind);
      }
      /** @type {Thin | null} */
      let thin = null;
      const { shades, family: mine } = inks[kind];
      const digits = height >= LOWEST_NUMBERED;
      for (; at < stop && start[at] <= place.to; at++) {
        const [from, to] = [(start[at] - place.from) * scale, (end[at] - place.from) * scale];
        if (to < 0) continue;
        const shade = shadeOf(stage[at], shades.length, perPipeline);
        const color = shades[shade];
        let /** @type {number} */ left, /** @type {number} */ right;
        if (to - from >= wide) {
          left = Math.max(0, Math.round(from));
          right = Math.min(width, Math.round(to) - (to - from > 1.5 * wide ? gap : 0)); // so that equal neighbours can be told apart
          if (right <= left) continue;
          body.fill(color, left, right);
          spans.push(left, right);
          if (digits && right - left >= numbered && microbatch[at] >= 0)
            numbers.push(place.left + left / ratio, top, (right - left) / ratio, height, microbatch[at], kind, shade);
        } else {
          [left, right] = [Math.max(0, Math.min(width - 1, Math.floor(from))), Math.min(width, Math.max(Math.ceil(to), Math.floor(from) + 1))];
          if (!thin) thins.push((thin = this.thinOf(kind)));
          begins[left]++;
          for (let x = left; x < right; x++) {
            thin.share[x] += Math.max(0.02, Math.min(to, x + 1) - Math.max(from, x));
            thin.color[x] = color;
          }
          if (left < thinFrom) thinFrom = left;
          if (right > thinTo) thinTo = right;
        }
        family.fill(mine, left, Math.max(right, left + 1));
      }
    }
    this.density = thins.length ? densityOf(begins, thins, ratio) : null;
    if (this.density) for (let x = 0; x < width; x++) if (body[x]) this.density.dense[x] = 0; // wide bars stay
    this.mix(thins, thinFrom, thinTo);
    this.dropCovered(firstNumber, inks);
    return some;
  }

  /**
   * Empty shares and colours of a kind's thin bars in a lane.
   * @type {(kind: number) => Thin}
   */
  thinOf(kind) {
    const thin = (this.thin[kind] ??= { share: new Float32Array(this.width), color: new Uint32Array(this.width), owed: 0 });
    thin.share.fill(0);
    thin.color.fill(0);
    thin.owed = 0;
    return thin;
  }

  /**
   * Thin bars into the body: a pixel has the hue of one kind, and neighbours take turns by what each covers.
   * @type {(thins: Thin[], from: number, to: number) => void}
   */
  mix(thins, from, to) {
    const { body } = this;
    for (let x = from; x < to; x++) {
      let covered = 0;
      let chosen = /** @type {Thin | null} */ (null);
      for (const thin of thins) {
        covered += thin.share[x];
        thin.owed += thin.share[x];
        if (thin.share[x] && (!chosen || thin.owed > chosen.owed)) chosen = thin;
      }
      if (!chosen) continue;
      chosen.owed -= covered;
      if (!body[x]) body[x] = faded(chosen.color[x], Math.min(1, Math.max(FAINTEST, covered)));
    }
  }

  /**
   * Numbers of this lane's bars that later kinds were painted over are not written.
   * @type {(first: number, inks: Raster["inks"]) => void}
   */
  dropCovered(first, inks) {
    const { numbers, body, place, ratio } = this;
    let kept = first;
    for (let at = first; at < numbers.length; at += 7) {
      const [x, , wide, , , kind, shade] = numbers.slice(at, at + 7);
      if (body[Math.round((x + wide / 2 - place.left) * ratio)] !== inks[kind].shades[shade]) continue;
      numbers.copyWithin(kept, at, at + 7);
      kept += 7;
    }
    numbers.length = kept;
  }

  /**
   * Round corners, and the waits between bars.
   * @type {(row: number, spans: number[], bars: Bars, height: number) => void}
   */
  finish(row, spans, bars, height) {
    const { body, rim } = this;
    rim.set(body);
    for (let at = 0; at < spans.length && height >= LOWEST_ROUNDED; at += 2) {
      const [left, right] = [spans[at], spans[at + 1]];
      rim[left] = faded(rim[left], CORNER);
      rim[right - 1] = faded(rim[right - 1], CORNER);
    }
    this.hasWaits = this.hatch(row, bars, height);
  }

  /**
   * Lines of pixels with hatched waits, one for each phase of the hatching; whether there are any.
   * @type {(row: number, bars: Bars, height: number) => boolean}
   */
  hatch(row, bars, height) {
    const { families, place, scale, ratio, width, family, body, hatched, inks } = this;
    if (!families.length || height < 4) return false;
    const next = this.nextFamily(row, bars, place.to);
    if (next === null) return false;
    const begin = Math.max(0, Math.round((bars.first - place.from) * scale));
    const stop = Math.min(width, Math.round((bars.last - place.from) * scale));
    /** @type {number[]} */
    const runs = []; // from, to, family
    let free = stop;
    let waited = next;
    for (let x = stop - 1; x >= begin - 1; x--) {
      if (x >= begin && !body[x]) continue;
      if (free - x - 1 >= LEAST_WAIT * ratio && waited < families.length) runs.push(x + 1, free, waited);
      free = x;
      waited = family[x];
    }
    if (!runs.length || !inks.length) return false;
    const period = Math.round(HATCH_PERIOD * ratio);
    for (let phase = 0; phase < period; phase++) {
      const line = (hatched[phase] ??= new Uint32Array(width)).length === width ? hatched[phase] : (hatched[phase] = new Uint32Array(width));
      line.fill(0);
      for (let at = 0; at < runs.length; at += 3) {
        const color = families[runs[at + 2]];
        for (let x = runs[at] + ratio; x < runs[at + 1] - ratio; x++) {
          const away = (Math.floor(x) + phase) % period;
          const cover = Math.min(1, Math.max(0, HATCH_WIDTH * ratio - away));
          if (cover) line[Math.floor(x)] = faded(color, cover * HATCH_ALPHA);
        }
      }
      for (let x = begin; x < stop; x++) if (body[x]) line[x] = body[x];
    }
    hatched.length = period;
    return true;
  }

  /**
   * What a row waits for at a time: the family of its next bar; the last of all after the last, null for rows that hold no computations.
   * @type {(row: number, bars: Bars, time: number) => number | null}
   */
  nextFamily(row, bars, time) {
    const { inks } = this;
    let [found, soonest, computes] = [SEVERAL, Infinity, false];
    for (let kind = 0; kind < Math.min(bars.nKinds, inks.length); kind++) {
      const [begin, stop] = bars.strip(row, kind);
      if (begin === stop || inks[kind].family === SEVERAL) continue;
      computes = true;
      const at = firstAtLeast(bars.start, time, begin, stop);
      if (at < stop && bars.start[at] < soonest) [found, soonest] = [inks[kind].family, bars.start[at]];
    }
    if (!computes) return null;
    return soonest < Infinity ? found : this.lastFamily;
  }

  /**
   * The finished lane into the image; `withWaits` where nothing else is drawn there.
   * @type {(top: number, height: number, withWaits: boolean) => void}
   */
  write(top, height, withWaits) {
    const { place, ratio, body, rim, hatched, width, pixels } = this;
    const [first, last] = [Math.round((top - place.top) * ratio), Math.round((top + height - place.top) * ratio)];
    if (withWaits && this.hasWaits) {
      const period = hatched.length;
      for (let y = Math.max(0, first); y < Math.min(last, this.height); y++) pixels.set(hatched[y % period], y * width);
    } else this.copy(body, first, last);
    const line = Math.max(1, Math.round(ratio));
    if (height >= LOWEST_ROUNDED) {
      this.rims(rim, body, first, Math.min(last, first + line));
      this.rims(rim, body, Math.max(first, last - line), last);
    }
    if (this.density && height >= LOWEST_STACKED) this.stack(this.density, first, last);
  }

  /**
   * The shares of crowded bars, over the lane from `first` up to `last`.
   * @type {(density: import("./density.js").Density, first: number, last: number) => void}
   */
  stack(density, first, last) {
    const { width, pixels, height } = this;
    for (let y = Math.max(0, first); y < Math.min(last, height); y++) {
      const [low, high] = [(last - y - 1) / (last - first), (last - y) / (last - first)];
      for (let x = 0; x < width; x++) if (density.dense[x]) pixels[y * width + x] = stackedAt(density, x, low, high);
    }
  }

  /**
   * One line of pixels into the rows of the image from `first` up to `last`.
   * @type {(line: Uint32Array, first: number, last: number) => void}
   */
  copy(line, first, last) {
    const { width, pixels } = this;
    const [begin, end] = [Math.max(0, first), Math.min(last, this.height)];
    if (begin >= end) return;
    pixels.set(line, begin * width);
    for (let y = begin + 1; y < end; y++) pixels.copyWithin(y * width, begin * width, (begin + 1) * width);
  }

  /**
   * The same of what differs from the body only.
   * @type {(rim: Uint32Array, body: Uint32Array, first: number, last: number) => void}
   */
  rims(rim, body, first, last) {
    const { width, pixels } = this;
    for (let y = Math.max(0, first); y < Math.min(last, this.height); y++)
      for (let x = 0; x < width; x++) if (rim[x] !== body[x]) pixels[y * width + x] = rim[x];
  }

  /**
   * A thin line of ink where bars were.
   * @type {(row: number, bars: Bars, lane: ReturnType<RasterPlace["lane"]>) => void}
   */
  paintGhost(row, bars, lane) {
    const { width, share, body, place, scale, ratio, ghostInk } = this;
    share.fill(0);
    let some = false;
    for (let kind = 0; kind < bars.nKinds; kind++) {
      const [begin, stop] = bars.strip(row, kind);
      for (let at = firstAtLeast(bars.reach, place.from, begin, stop); at < stop && bars.start[at] <= place.to; at++) {
        const [from, to] = [(bars.start[at] - place.from) * scale, (bars.end[at] - place.from) * scale];
        const [left, right] = [Math.max(0, Math.floor(from)), Math.min(width, Math.max(Math.ceil(to), Math.floor(from) + 1))];
        if (right <= left) continue;
        some = true;
        share[left] += Math.min(to, left + 1) - Math.max(from, left);
        if (right - left > 1) {
          share.fill(1, left + 1, right - 1);
          share[right - 1] += to - (right - 1);
        }
      }
    }
    if (!some) return;
    for (let x = 0; x < width; x++) body[x] = share[x] ? faded(ghostInk, GHOST_ALPHA * Math.min(1, Math.max(0.35, share[x]))) : 0;
    const first = Math.round(((lane.ghostTop ?? lane.top) - place.top) * ratio);
    this.copy(body, first, first + Math.max(1, Math.round((lane.ghostHeight ?? 1) * ratio)));
  }
}
