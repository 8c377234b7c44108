// How far each line bends, so that it goes round what it does not belong to, and keeps apart from other lines.
import { along, control, inRectangle } from "./geometry.js";
/** @import { Point } from "shared/types.d.ts" */
/** @import { Bendable, Obstacle, Rectangle } from "../types.d.ts" */

const BENDS = [0, -0.12, 0.12, -0.2, 0.2, -0.3, 0.3, -0.42, 0.42, -0.58, 0.58, -0.8, 0.8]; // of the line's length
const STEPS = 14;
const MOST_COMPARED = 48; // lines, above which they are not kept apart from each other
const [THROUGH, OUTSIDE, NEAR_OTHER, PER_BEND] = [100, 80, 6, 8];

/**
 * {id: bend} of lines {id, a, b, ends, twin}: `a` and `b` are places, `twin` is true where another line joins the
 * same two the other way; a line stays in `bounds` if it can. `obstacles` are {owner, x1, y1, x2, y2}; a line may cross those whose owner is one of `ends`.
 * @type {(lines: Bendable[], obstacles: Obstacle[], apart: number, bounds: Rectangle) => Map<string, number>}
 */
export function routes(lines, obstacles, apart, bounds) {
  /** @type {Map<string, number>} */
  const bends = new Map();
  /** @type {Point[][]} */
  const drawn = [];
  const compare = lines.length <= MOST_COMPARED;
  for (const line of lines) {
    const length = Math.hypot(line.b.x - line.a.x, line.b.y - line.a.y);
    if (length < 1) {
      bends.set(line.id, 0);
      continue;
    }
    const reach = length * 0.45 + apart;
    const box = {
      x1: Math.min(line.a.x, line.b.x) - reach,
      x2: Math.max(line.a.x, line.b.x) + reach,
      y1: Math.min(line.a.y, line.b.y) - reach,
      y2: Math.max(line.a.y, line.b.y) + reach,
    };
    const near = obstacles.filter((one) => !line.ends.includes(one.owner) && one.x1 < box.x2 && one.x2 > box.x1 && one.y1 < box.y2 && one.y2 > box.y1);
    let [best, bestCost, bestWay] = [0, Infinity, /** @type {Point[]} */ ([])];
    for (const share of BENDS) {
      if (line.twin && share >= 0) continue; // each of two keeps to its own left
      const way = sampled(line, share * length);
      const cost =
        PER_BEND * Math.abs(share)
        + THROUGH * hits(way, near)
        + OUTSIDE * way.filter((p) => !inRectangle(bounds)(p)).length
        + (compare ? NEAR_OTHER * touching(way, drawn, apart) : 0);
      if (cost < bestCost) [best, bestCost, bestWay] = [share * length, cost, way];
      if (cost < PER_BEND * 0.1) break;
    }
    bends.set(line.id, best);
    if (compare) drawn.push(bestWay);
  }
  return bends;
}

/** @type {(line: { a: Point, b: Point }, bend: number) => Point[]} */
function sampled({ a, b }, bend) {
  const c = control(a, b, bend);
  return Array.from({ length: STEPS - 1 }, (_, at) => along(a, c, b, (at + 1) / STEPS));
}

/** @type {(way: Point[], obstacles: Obstacle[]) => number} */
function hits(way, obstacles) {
  let count = 0;
  for (const { x, y } of way) for (const one of obstacles) if (x > one.x1 && x < one.x2 && y > one.y1 && y < one.y2) count++;
  return count;
}

/**
 * How many points of a line lie on another: one if they cross, many if they overlap.
 * @type {(way: Point[], others: Point[][], apart: number) => number}
 */
function touching(way, others, apart) {
  let count = 0;
  for (const other of others) {
    let common = 0;
    for (const p of way) if (other.some((q) => (p.x - q.x) ** 2 + (p.y - q.y) ** 2 < (apart / 3) ** 2)) common++;
    if (common > 2) count += common;
  }
  return count;
}
