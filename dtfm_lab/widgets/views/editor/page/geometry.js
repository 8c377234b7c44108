// Lines on the canvas: one bend each, cut off where they leave what they join.
/** @import { Context, Point } from "shared/types.d.ts" */
/** @import { Curve, Inside, Rectangle } from "../types.d.ts" */

const SAMPLES = 24;

/**
 * The control point of a line from a to b that stands `bend` aside of the middle, as cytoscape has it.
 * @type {(a: Point, b: Point, bend: number) => Point}
 */
export function control(a, b, bend) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  return { x: (a.x + b.x) / 2 - (dy / length) * bend, y: (a.y + b.y) / 2 + (dx / length) * bend };
}

/** @type {(a: Point, c: Point, b: Point, t: number) => Point} */
export function along(a, c, b, t) {
  const s = 1 - t;
  return { x: s * s * a.x + 2 * s * t * c.x + t * t * b.x, y: s * s * a.y + 2 * s * t * c.y + t * t * b.y };
}

/**
 * {a, c, b, from, to}: the bent line, drawn from t = `from` to t = `to`, outside of both ends.
 * @type {(a: Point, b: Point, bend: number, insideA: Inside, insideB: Inside) => Curve}
 */
export function curve(a, b, bend, insideA, insideB) {
  const c = control(a, b, bend);
  let [from, to] = [0, 1];
  for (let step = 1; step < SAMPLES && insideA(along(a, c, b, step / SAMPLES)); step++) from = step / SAMPLES;
  for (let step = SAMPLES - 1; step > 0 && insideB(along(a, c, b, step / SAMPLES)); step--) to = step / SAMPLES;
  from = edge(a, c, b, from, Math.min(1, from + 1 / SAMPLES), insideA);
  to = edge(a, c, b, to, Math.max(0, to - 1 / SAMPLES), insideB);
  return from < to ? { a, c, b, from, to } : { a, c, b, from: 0.45, to: 0.55 };
}

/**
 * Between an inner and an outer t, where the line leaves.
 * @type {(a: Point, c: Point, b: Point, inner: number, outer: number, inside: Inside) => number}
 */
function edge(a, c, b, inner, outer, inside) {
  for (let round = 0; round < 6; round++) {
    const middle = (inner + outer) / 2;
    if (inside(along(a, c, b, middle))) inner = middle;
    else outer = middle;
  }
  return outer;
}

/**
 * The point at a share of the drawn part of a curve.
 * @type {(curve: Curve, share: number) => Point}
 */
export const placeOn = ({ a, c, b, from, to }, share) => along(a, c, b, from + (to - from) * share);

/** @type {(context: Context, curve: Curve) => void} */
export function trace(context, { a, c, b, from, to }) {
  const [start, end] = [along(a, c, b, from), along(a, c, b, to)];
  const weights = [(1 - from) * (1 - to), (1 - from) * to + from * (1 - to), from * to];
  context.moveTo(start.x, start.y);
  context.quadraticCurveTo(weights[0] * a.x + weights[1] * c.x + weights[2] * b.x, weights[0] * a.y + weights[1] * c.y + weights[2] * b.y, end.x, end.y);
}

/** @type {(centre: Point, radius: number) => Inside} */
export const inCircle =
  ({ x, y }, radius) =>
  (p) =>
    (p.x - x) ** 2 + (p.y - y) ** 2 < radius ** 2;

/** @type {(box: Rectangle, gap?: number) => Inside} */
export const inRectangle =
  ({ x1, y1, x2, y2 }, gap = 0) =>
  (p) =>
    p.x > x1 - gap && p.x < x2 + gap && p.y > y1 - gap && p.y < y2 + gap;

/** @type {(a: Rectangle, b: Rectangle, gap?: number) => boolean} */
export const overlap = (a, b, gap = 0) => a.x1 < b.x2 + gap && a.x2 > b.x1 - gap && a.y1 < b.y2 + gap && a.y2 > b.y1 - gap;
