// The keyboard's place on the map: a card, or a device in it; arrow keys go to the nearest in their direction.
/** @typedef {{ name: string, x: number, y: number, region?: string }} Place */
/** @import { Walk } from "../types.d.ts" */

/**
 * The nearest of `spots` {name, x, y} from one of them in direction (dx, dy), or null.
 * @type {(spots: Place[], from: Place, dx: number, dy: number) => Place | null}
 */
function nearest(spots, from, dx, dy) {
  /** @type {{ spot: Place, far: number } | null} */
  let best = null;
  for (const spot of spots) {
    if (spot === from) continue;
    const [along, aside] = [(spot.x - from.x) * dx + (spot.y - from.y) * dy, Math.abs((spot.x - from.x) * dy) + Math.abs((spot.y - from.y) * dx)];
    if (along <= 1) continue;
    const far = along + 2 * aside;
    if (!best || far < best.far) best = { spot, far };
  }
  return best?.spot ?? null;
}

/**
 * `map` is {cards() and badges(): {name, x, y, region}}; the walker's `place` is {kind: "card" | "device", name} or null.
 * @type {(map: { cards: () => Place[], badges: () => Place[] }) => { readonly place: Walk, step: (dx: number, dy: number) => Walk, enter: () => Walk, back: () => boolean, leave: () => void }}
 */
export function walker(map) {
  /** @type {Walk} */
  let place = null;
  /** @type {() => Place[]} */
  const spots = () => (place?.kind === "card" ? map.cards() : map.badges().filter(({ region }) => region === place?.region));
  return {
    get place() {
      return place;
    },
    /** One step; the first goes to the first card. Returns the new place, or null where there is nothing. */
    step(dx, dy) {
      if (!place) {
        const [first] = map.cards();
        place = first ? { kind: "card", name: first.name } : null;
        return place;
      }
      const all = spots();
      const { name: at } = place;
      const here = all.find(({ name }) => name === at) ?? all[0];
      const next = here && nearest(all, here, dx, dy);
      if (next) place = { ...place, name: next.name };
      return place;
    },
    enter() {
      if (place?.kind !== "card") return null;
      const { name: card } = place;
      const [first] = map.badges().filter(({ region }) => region === card);
      if (first) place = { kind: "device", name: first.name, region: card };
      return place;
    },
    /** Out of a card, then off the map; false where it was off already. */
    back() {
      if (!place) return false;
      place = place.kind === "device" ? { kind: "card", name: place.region ?? "" } : null;
      return true;
    },
    leave() {
      place = null;
    },
  };
}
