// Where each region's card stands: in a ring around the globe, or pushed apart where they are many. It depends on
// places, names and counts alone, never on latencies, bandwidths or plans, so that nothing jumps when these change.
import { there } from "shared/there.js";
/** @import { Area, Card, Globe, Ground, Layout, Place, Region, Spot } from "../types.d.ts" */

export const TOP = 34; // pixels of the row of icons
export const NAME = 17; // pixels of a card's name, above its box
const PAD = 5; // between a card's edge and its badges
const GAP = 10; // between cards
const TIGHT = 4; // between the smallest cards
const ROOMY = 30; // between cards of a ring, where there is room
const EDGE = 8; // between cards and the picture's edge
const MOST_IN_RING = 16;
const FOLD = 16; // most badges of a card where there is no room for all
const UNFOLDED = 64; // most badges of a card at all, until it is opened
const FULLEST = 0.34; // of the picture, in cards
const LARGEST_FOLDED = 20; // pixels of a badge: larger ones are for cards that show all of theirs
/**
 * [pixels of a badge and its gap, most badges of a card, pixels between cards of a ring]: the first that fits is taken.
 * @type {[number, number, number][]}
 */
const SIZES = [
  [34, 8, ROOMY],
  [26, 16, ROOMY],
  [23, 32, ROOMY],
  [20, UNFOLDED, ROOMY],
  [18, UNFOLDED, ROOMY],
  [20, FOLD, ROOMY],
  [18, FOLD, ROOMY],
  [18, FOLD, GAP],
  [14, UNFOLDED, GAP],
  [16, FOLD, GAP],
  [14, FOLD, GAP],
  [11, FOLD, GAP],
  [9, FOLD, GAP],
  [8, FOLD, GAP],
  [7, FOLD, GAP],
];
/** The same of hosts, whose cells can have numbers. @type {typeof SIZES} */
const HOST_SIZES = [
  [84, 8, ROOMY],
  [64, 16, ROOMY],
  [48, 32, ROOMY],
];
const TURN = 2 * Math.PI;

/**
 * `regions` are {name, devices, place}; {cards, byName, ground, cell}. A card is {name, devices, x, y, w, h, home, slots, more}
 * in pixels: its middle and size with the name, the place on the globe, offsets of badges from its middle, and how many are folded.
 * @type {(regions: Region[], globe: Globe | null, look: { width: number, height: number, nameWidth: (name: string) => number, open?: string | null }) => Omit<Layout, "globeOf">}
 */
export function layoutOf(regions, globe, { width, height, nameWidth, open }) {
  const shown = regions.filter(({ devices, name }) => devices.length || name);
  const known = shown.filter(({ place }) => place);
  const lost = known.length ? shown.filter(({ place }) => !place) : [];
  const placed = known.length ? known : shown;
  /** @type {Omit<Layout, "globeOf" | "byName"> | null} */
  let best = null;
  const hasHosts = shown.some(({ devices }) => devices.some(({ members }) => members));
  for (const [cell, most, gap] of hasHosts ? [...HOST_SIZES, ...SIZES] : SIZES) {
    if (cell > LARGEST_FOLDED && shown.some(({ devices }) => devices.length > most)) continue;
    const shelf = shelfOf(
      lost.map((region) => cardOf(region, cell, most, nameWidth)),
      width,
      height,
    );
    const area = { left: EDGE, top: TOP + 2, right: width - EDGE, bottom: height - EDGE - shelf.height };
    const ground = globe && groundOf(globe, area);
    const cards = placed.map((region) => cardOf(region, cell, most, nameWidth));
    for (const card of cards) card.home = ground && card.place ? homeOf(card.place, globe, ground) : null;
    const fits =
      cards.reduce((sum, card) => sum + card.w * card.h, 0) < (cell < 10 ? 1 : FULLEST) * (area.right - area.left) * (area.bottom - area.top)
      && cards.every((card) => card.w <= area.right - area.left && card.h <= area.bottom - area.top);
    const apart =
      (fits || cell === SIZES.at(-1)[0])
      && ((cards.length <= MOST_IN_RING && inRing(cards, area, ground, gap)) || freely(cards, area, ground, cell < 10 ? TIGHT : GAP));
    best = { cards: [...cards, ...shelf.cards], ground, cell, shelf: shelf.cards.length ? area.bottom + EDGE : null, folded: shelf.folded };
    if (apart) break;
  }
  const found = there(best);
  if (open) {
    const card = found.cards.find(({ name }) => name === open);
    unfold(card, found.cell, width, height, nameWidth);
  }
  return { ...found, byName: new Map(found.cards.map((card) => [card.name, card])) };
}

/** @type {(globe: Globe, area: Area) => Ground} */
function groundOf(globe, { left, top, right, bottom }) {
  const scale = Math.max(1, Math.min(right - left, bottom - top) / 2 + 2) / globe.radius;
  return { x: (left + right) / 2, y: (top + bottom) / 2, scale };
}

/** @type {(place: Place, globe: Globe, ground: Ground) => Spot} */
function homeOf(place, globe, ground) {
  const [x, y] = globe.project(place);
  return [ground.x + (x - globe.centre[0]) * ground.scale, ground.y + (y - globe.centre[1]) * ground.scale];
}

/** @type {(region: Region, cell: number, most: number, nameWidth: (name: string) => number) => Card} */
function cardOf(region, cell, most, nameWidth) {
  const n = region.devices.length;
  const shown = n > most ? most - 1 : n;
  const cells = n > most ? most : n;
  const wide = Math.min(nameWidth(region.name), 150) + 6;
  const columns = Math.max(1, Math.min(cells, Math.max(4, Math.ceil(Math.sqrt(1.8 * cells)), Math.floor((wide - 2 * PAD) / cell))));
  const rows = Math.max(1, Math.ceil(cells / columns));
  const bar = n > most ? 6 : 0; // the counts of stages, where not all can be seen
  const w = Math.max(columns * cell + 2 * PAD, wide);
  const h = rows * cell + 2 * PAD + NAME + bar;
  /** @type {Spot[]} */
  const slots = Array.from({ length: cells }, (_, at) => [
    ((at % columns) - (Math.min(columns, cells) - 1) / 2) * cell,
    (Math.floor(at / columns) - (rows - 1) / 2) * cell + (NAME - bar) / 2,
  ]);
  return { ...region, w, h, slots, shown, more: n - shown, bar, cell, home: null, x: 0, y: 0 };
}

/**
 * All devices of one card, over its neighbours, as large as there is room for.
 * @type {(card: Card | undefined, cell: number, width: number, height: number, nameWidth: (name: string) => number) => void}
 */
function unfold(card, cell, width, height, nameWidth) {
  if (!card?.more) return;
  for (const size of [Math.max(18, cell), 16, 13, 10, 8]) {
    const all = cardOf(card, size, Infinity, nameWidth);
    Object.assign(card, { w: all.w, h: all.h, slots: all.slots, shown: all.shown, more: 0, bar: 0, cell: size, opened: true });
    if (card.w < width - 2 * EDGE && card.h < height - 2 * EDGE) break;
  }
  card.x = Math.min(width - EDGE - card.w / 2, Math.max(EDGE + card.w / 2, card.x));
  card.y = Math.min(height - EDGE - card.h / 2, Math.max(EDGE + card.h / 2, card.y));
}

/**
 * Cards of regions without a known place, side by side at the lower edge; those for which there is no room are `folded`.
 * @type {(cards: Card[], width: number, height: number) => { cards: Card[], height: number, folded: number }}
 */
function shelfOf(cards, width, height) {
  if (!cards.length) return { cards: [], height: 0, folded: 0 };
  /** @type {Card[][]} */
  const rows = [[]];
  let x = EDGE;
  for (const card of cards) {
    if (x > EDGE && x + card.w > width - EDGE) {
      rows.push([]);
      x = EDGE;
    }
    rows.at(-1).push(card);
    card.x = x + card.w / 2;
    x += card.w + GAP;
  }
  let tall = 0;
  const kept = rows.filter((row) => {
    tall += Math.max(...row.map(({ h }) => h)) + 4;
    return tall < 0.4 * height;
  });
  let y = height - EDGE;
  for (const row of [...kept].reverse()) {
    const most = Math.max(...row.map(({ h }) => h));
    for (const card of row) card.y = y - most / 2;
    y -= most + 4;
  }
  const shown = kept.flat();
  for (const card of shown) card.shelved = true;
  return { cards: shown, height: height - y, folded: cards.length - shown.length };
}

/**
 * Cards on a rounded ring at the area's edge, in the order in which their places lie around its middle; false where they overlap.
 * @type {(cards: Card[], area: Area, ground: Ground | null, gap: number) => boolean}
 */
function inRing(cards, area, ground, gap) {
  const n = cards.length;
  const [mx, my] = [(area.left + area.right) / 2, (area.top + area.bottom) / 2];
  const natural = cards.map(({ home }, at) =>
    home ? Math.atan2(home[1] - my, home[0] - mx) : ground ? 0 : TURN * (at / n) + (n === 2 ? Math.PI : -Math.PI / 2),
  );
  if (n === 1) {
    Object.assign(cards[0], { x: mx, y: my });
    return true;
  }
  const order = cards.map((_, at) => at).sort((a, b) => natural[a] - natural[b] || a - b);
  // half of the way from where they lie to places that are evenly apart
  const even = order.map((_, at) => (TURN * at) / n);
  const turn = Math.atan2(
    order.reduce((sum, card, at) => sum + Math.sin(natural[card] - even[at]), 0),
    order.reduce((sum, card, at) => sum + Math.cos(natural[card] - even[at]), 0),
  );
  const angles = order.map((card, at) => {
    const off = natural[card] - even[at] - turn;
    return even[at] + turn + 0.45 * Math.atan2(Math.sin(off), Math.cos(off));
  });
  /** @type {(at: number) => void} */
  const put = (at) => {
    const card = cards[order[at]];
    const [c, s] = [Math.cos(angles[at]), Math.sin(angles[at])];
    /** @type {(value: number) => number} */
    const bulge = (value) => Math.sign(value) * Math.abs(value) ** 0.72; // between an ellipse and a rectangle
    card.x = mx + bulge(c) * ((area.right - area.left - card.w) / 2);
    card.y = my + bulge(s) * ((area.bottom - area.top - card.h) / 2);
  };
  angles.forEach((_, at) => put(at));
  for (let round = 0; round < 240; round++) {
    let moved = false;
    for (let at = 0; at < n; at++) {
      const next = (at + 1) % n;
      if (next === at || !overlap(cards[order[at]], cards[order[next]], gap)) continue;
      moved = true;
      angles[at] -= 0.012;
      angles[next] += 0.012;
      put(at);
      put(next);
    }
    if (!moved) break;
  }
  return noneOverlap(cards, gap - 2);
}

/**
 * Cards near their places, stretched to fill the area and pushed apart; false where they overlap.
 * @type {(cards: Card[], area: Area, ground: Ground | null, gap: number) => boolean}
 */
function freely(cards, area, ground, gap) {
  const [mx, my] = [(area.left + area.right) / 2, (area.top + area.bottom) / 2];
  const homes = cards.map(({ home }, at) => home ?? (ground ? [mx, my] : [mx + Math.cos(at * 2.4) * Math.sqrt(at), my + Math.sin(at * 2.4) * Math.sqrt(at)]));
  const reach = [0, 1].map((axis) => Math.max(1, ...homes.map((home) => Math.abs(home[axis] - [mx, my][axis]))));
  const room = [(area.right - area.left) / 2, (area.bottom - area.top) / 2];
  cards.forEach((card, at) => {
    card.x = mx + ((homes[at][0] - mx) / reach[0]) * (room[0] - card.w / 2);
    card.y = my + ((homes[at][1] - my) / reach[1]) * (room[1] - card.h / 2);
  });
  for (let round = 0; round < 400; round++) {
    let moved = false;
    for (let one = 0; one < cards.length; one++)
      for (let two = one + 1; two < cards.length; two++) {
        const [a, b] = [cards[one], cards[two]];
        if (!overlap(a, b, gap)) continue;
        moved = true;
        const overX = (a.w + b.w) / 2 + gap - Math.abs(b.x - a.x);
        const overY = (a.h + b.h) / 2 + gap - Math.abs(b.y - a.y);
        if (overX < overY) {
          const step = 0.35 * overX * (b.x > a.x || (b.x === a.x && two > one) ? 1 : -1);
          a.x -= step;
          b.x += step;
        } else {
          const step = 0.35 * overY * (b.y > a.y || (b.y === a.y && two > one) ? 1 : -1);
          a.y -= step;
          b.y += step;
        }
      }
    for (const card of cards) {
      card.x = Math.min(area.right - card.w / 2, Math.max(area.left + card.w / 2, card.x));
      card.y = Math.min(area.bottom - card.h / 2, Math.max(area.top + card.h / 2, card.y));
    }
    if (!moved) break;
  }
  return noneOverlap(cards, 1);
}

/** @type {(a: Card, b: Card, gap: number) => boolean} */
const overlap = (a, b, gap) => Math.abs(a.x - b.x) < (a.w + b.w) / 2 + gap && Math.abs(a.y - b.y) < (a.h + b.h) / 2 + gap;
/** @type {(cards: Card[], gap: number) => boolean} */
const noneOverlap = (cards, gap) => cards.every((a, at) => cards.slice(at + 1).every((b) => !overlap(a, b, gap)));
