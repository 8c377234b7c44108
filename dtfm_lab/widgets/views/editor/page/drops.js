// Where a dragged device comes to lie: in the region whose box it is dropped on, and beside others, not on them.
/** @import { Point } from "shared/types.d.ts" */
/** @import { Rectangle } from "../types.d.ts" */

const MOST_RINGS = 60;

/**
 * The name of the box that a place is in, or null. Of boxes in each other's way, the one whose middle is nearest.
 * @type {(place: Point, boxes: Map<string, Rectangle>) => string | null}
 */
export function boxAt({ x, y }, boxes) {
  const inside = [...boxes].filter(([, { x1, x2, y1, y2 }]) => x >= x1 && x <= x2 && y >= y1 && y <= y2);
  /** @type {(box: Rectangle) => number} */
  const away = ({ x1, x2, y1, y2 }) => Math.hypot(x - (x1 + x2) / 2, y - (y1 + y2) / 2);
  inside.sort(([, one], [, other]) => away(one) - away(other));
  return inside[0]?.[0] ?? null;
}

/**
 * The nearest place that is free, in rings of `step` around this one. The place itself if none is found.
 * @type {(place: Point, step: number, isFree: (place: Point) => boolean) => Point}
 */
export function nearestFree({ x, y }, step, isFree) {
  for (let ring = 0; ring < MOST_RINGS; ring++)
    for (let at = 0; at < Math.max(1, 6 * ring); at++) {
      const turn = (2 * Math.PI * at) / Math.max(1, 6 * ring);
      const place = { x: x + ring * step * Math.cos(turn), y: y + ring * step * Math.sin(turn) };
      if (isFree(place)) return place;
    }
  return { x, y };
}
