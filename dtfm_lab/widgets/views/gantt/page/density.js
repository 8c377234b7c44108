// Where bars are thinner than some three pixels and crowded, a lane shows how much of the time each kind takes: colours that lie
// on each other, as high as their share, in place of stripes that depend on where pixels begin.

/** @import { Bars } from "./bars.js" */

const WINDOW = 8; // pixels over which shares are averaged, twice
const GAP = 4; // idle pixels that are seen as such
const [AROUND, CROWDED] = [16, 5]; // thin bars that begin within so many pixels, from which they merge

/**
 * Averages over the window around each pixel. Twice, so that the period of a schedule leaves no ripple.
 * @type {(values: Float32Array, window: number) => Float32Array}
 */
export function smoothed(values, window) {
  const half = Math.max(1, Math.floor(window / 2));
  let from = values;
  for (let pass = 0; pass < 2; pass++) {
    const to = new Float32Array(from.length);
    let sum = 0;
    for (let x = -half; x < from.length; x++) {
      sum += from[x + half] ?? 0;
      if (x < 0) continue;
      to[x] = sum / (Math.min(from.length - 1, x + half) - Math.max(0, x - half) + 1);
      sum -= from[x - half] ?? 0;
    }
    from = to;
  }
  return from;
}

/**
 * The pixels of a lane in which bars merge: 1 where as many as CROWDED thin bars begin around them. Null if none do.
 * @type {(begins: Uint16Array, ratio: number) => Uint8Array | null}
 */
export function crowdedIn(begins, ratio) {
  const window = Math.round(AROUND * ratio);
  const dense = new Uint8Array(begins.length);
  let [sum, some] = [0, false];
  for (let x = 0; x < begins.length; x++) {
    sum += begins[x] - (begins[x - window] ?? 0);
    if (sum < CROWDED) continue;
    dense.fill(1, Math.max(0, x - window + 1), x + 1);
    some = true;
  }
  return some ? dense : null;
}

/** @typedef {{ dense: Uint8Array, layers: { share: Float32Array, color: Uint32Array }[] }} Density */

/**
 * What a lane shows in place of crowded bars: of each kind the averaged shares, and its colours. No average reaches over an
 * idle time that can be seen.
 * @type {(begins: Uint16Array, thins: { share: Float32Array, color: Uint32Array }[], ratio: number) => Density | null}
 */
export function densityOf(begins, thins, ratio) {
  const dense = crowdedIn(begins, ratio);
  if (!dense) return null;
  const runs = runsOf(dense, thins, GAP * ratio);
  dense.fill(0);
  for (const [from, to] of runs) dense.fill(1, from, to);
  const layers = thins.map(({ share, color }) => {
    const averaged = new Float32Array(share.length);
    for (const [from, to] of runs) averaged.set(smoothed(share.subarray(from, to), WINDOW * ratio), from);
    return { share: averaged, color: carried(color) };
  });
  return { dense, layers };
}

/**
 * [from, to] of pixels that are crowded, from bar to bar; a gap of as many pixels as `most` ends one.
 * @type {(dense: Uint8Array, thins: { share: Float32Array }[], most: number) => [number, number][]}
 */
function runsOf(dense, thins, most) {
  /** @type {[number, number][]} */
  const runs = [];
  for (let x = 0; x < dense.length; x++) {
    if (!dense[x] || !thins.some(({ share }) => share[x] > 0)) continue;
    const last = runs.at(-1);
    if (last && x - last[1] < most) last[1] = x + 1;
    else runs.push([x, x + 1]);
  }
  return runs;
}

/**
 * Colours of a kind with gaps filled by the last colour before them, as averages reach beyond bars.
 * @type {(color: Uint32Array) => Uint32Array}
 */
function carried(color) {
  const filled = color.slice();
  for (let x = 1; x < filled.length; x++) if (!filled[x]) filled[x] = filled[x - 1];
  for (let x = filled.length - 2; x >= 0; x--) if (!filled[x]) filled[x] = filled[x + 1];
  return filled;
}

/**
 * The colour of a pixel of a lane that reaches from this to that share of its height, from below: what covers it, mixed
 * where it is cut by an edge. 0 above all shares.
 * @type {(density: Density, x: number, low: number, high: number) => number}
 */
export function stackedAt({ layers }, x, low, high) {
  let [top, alpha, red, green, blue] = [0, 0, 0, 0, 0];
  for (const { share, color } of layers) {
    const bottom = top;
    top += share[x];
    if (bottom <= low && high <= top) return color[x];
    const part = Math.min(top, high) - Math.max(bottom, low);
    if (part <= 0) continue;
    const weight = (part / (high - low)) * (color[x] >>> 24);
    alpha += weight;
    red += weight * (color[x] & 0xff);
    green += weight * ((color[x] >>> 8) & 0xff);
    blue += weight * ((color[x] >>> 16) & 0xff);
  }
  if (alpha < 1) return 0;
  const [r, g, b] = [red, green, blue].map((sum) => Math.round(sum / alpha));
  return ((Math.min(255, Math.round(alpha)) << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

const SPACED = 4; // pixels from bar to bar in a row, below which an overview shows shares

/**
 * The share of these rows that each kind has at each pixel, for a picture of all in one strip. Null where bars can be told
 * apart.
 * @type {(bars: Bars, rows: number[], place: { from: number, scale: number, width: number }) => Float32Array[] | null}
 */
export function sharesOf(bars, rows, { from, scale, width }) {
  const strips = rows.flatMap((row) => Array.from({ length: bars.nKinds }, (_, kind) => ({ kind, strip: bars.strip(row, kind) })));
  const count = strips.reduce((sum, { strip: [begin, stop] }) => sum + stop - begin, 0);
  if (count * SPACED < rows.length * width) return null;
  const shares = Array.from({ length: bars.nKinds }, () => new Float32Array(width));
  for (const { kind, strip } of strips)
    for (let at = strip[0]; at < strip[1]; at++) {
      const [left, right] = [Math.max(0, (bars.start[at] - from) * scale), Math.min(width, (bars.end[at] - from) * scale)];
      for (let x = Math.floor(left); x < right; x++) shares[kind][x] += (Math.min(right, x + 1) - Math.max(left, x)) / rows.length;
    }
  return shares.map((share) => smoothed(share, SPACED));
}
