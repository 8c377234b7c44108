// What is under the pointer, and where something let go there would come to.
import { farFrom } from "./routes.js";
/** @import { Camera, Card, CitySpot, Goal, Hit, Hits, Pipe, Place, Region, Spot } from "../types.d.ts" */

const NEAR_LINE = 7; // pixels
const NEAR_CITY = 34;
export const SAME_PLACE = 0.3; // degrees: a city and a region so near are one

/**
 * `scene` is {layout, badges, pairs, camera}; {kind: "device" | "more" | "region" | "pair", ...} at (x, y) in the box, or null.
 * @type {(hits: Hits, x: number, y: number) => Hit | null}
 */
export function under({ layout, badges, pairs, camera }, x, y) {
  const opened = layout.cards.find((card) => card.opened);
  const over = opened && inCard(opened, camera, x, y);
  const badge = badges.findLast((one) => one.seen > 0.5 && (!over || one.region === opened.name) && Math.hypot(x - one.x, y - one.y) <= one.radius + 2);
  if (badge) return { kind: "device", name: badge.name, region: badge.region };
  const card = over ? opened : layout.cards.findLast((one) => inCard(one, camera, x, y));
  if (card) {
    const [cx, cy] = camera.toScreen(card.x, card.y);
    const [dx, dy] = card.more ? card.slots.at(-1).map((part) => part * camera.cardScale) : [NaN, NaN];
    const isMore = Math.hypot(x - cx - dx, y - cy - dy) < 0.6 * card.cell * camera.cardScale;
    return { kind: isMore ? "more" : "region", name: card.name, card };
  }
  const [px, py] = camera.toLayout(x, y);
  /** @type {{ far: number, pair: Pipe | null }} */
  let nearest = { far: NEAR_LINE / camera.k, pair: null };
  for (const pair of pairs) {
    const far = farFrom(pair.points, px, py) - (pair.used ? 2 / camera.k : 0);
    if (far < nearest.far) nearest = { far, pair };
  }
  return nearest.pair && { kind: "pair", key: nearest.pair.key, a: nearest.pair.a, b: nearest.pair.b };
}

/** @type {(card: Card, camera: Camera, x: number, y: number) => boolean} */
function inCard(card, camera, x, y) {
  const [cx, cy] = camera.toScreen(card.x, card.y);
  const scale = camera.cardScale;
  return Math.abs(x - cx) <= (card.w / 2) * scale && y >= cy - (card.h / 2) * scale && y <= cy + (card.h / 2) * scale;
}

/**
 * The region or city that something let go at (x, y) would belong to: {name, x, y, known}, or null if none is near.
 * @type {(hits: Hits, cities: CitySpot[], x: number, y: number) => Goal | null}
 */
export function target({ layout, camera }, cities, x, y) {
  const card = layout.cards.findLast((one) => inCard(one, camera, x, y));
  if (card) return { name: card.name, x, y, known: true };
  let best = /** @type {(Goal & { far: number }) | null} */ (null);
  /** @type {(name: string, at: Spot, known: boolean) => void} */
  const offer = (name, at, known) => {
    const far = Math.hypot(x - at[0], y - at[1]) - (known ? 4 : 0); // prefer a region to a nearby city
    if (far < NEAR_CITY && (!best || far < best.far)) best = { name, x: at[0], y: at[1], known, far };
  };
  for (const { name, home } of layout.cards) if (home) offer(name, camera.toScreen(...home), true);
  for (const { name, at } of cities) offer(name, camera.toScreen(...at), false);
  return best;
}

/**
 * The region that stands where a place is, if any does.
 * @type {(regions: Region[], place: Place) => Region | undefined}
 */
export const standing = (regions, [x, y]) => regions.find(({ place }) => place && Math.abs(x - place[0]) < SAME_PLACE && Math.abs(y - place[1]) < SAME_PLACE);
