// Ways of pipes between cards: round the cards that they do not belong to, and places for labels on them.
import { NAME, TOP } from "./layout.js";
import { there } from "shared/there.js";
/** @import { Box, Card, Layout, Pair, Pipe, Spot, Tag, Way } from "../types.d.ts" */

const POINTS = 28;
const CLEAR = 7; // pixels between a pipe and a card that it passes
const BOWS = [0.14, 0.26, 0, -0.14, 0.4, -0.28, 0.58, -0.44, 0.8, -0.64, 1.1]; // of the length, inwards first
const VISIBLE = 70; // pixels of a used pipe between its cards, for a label
const [LABEL_W, LABEL_H] = [92, 32];
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74];

/** @type {(card: Card, room?: number) => Box} */
const boxOf = ({ x, y, w, h }, room = 0) => [x - w / 2 - room, y - h / 2 - room, x + w / 2 + room, y + h / 2 + room];
/** @type {(x: number, y: number, box: Box) => boolean} */
const inside = (x, y, [left, top, right, bottom]) => x > left && x < right && y > top && y < bottom;
/** @type {(a: Box, b: Box) => boolean} */
const meet = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];

/**
 * Where a card's pipes begin: the middle of its box, below the name.
 * @type {(card: Card) => Spot}
 */
const anchor = ({ x, y }) => [x, y + NAME / 2];

/** @type {(from: Spot, to: Spot, first: number, second: number) => Spot[]} */
function curve([x0, y0], [x1, y1], first, second) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  /** @type {(share: number, bow: number) => Spot} */
  const control = (share, bow) => [x0 + share * dx - bow * dy, y0 + share * dy + bow * dx];
  const [[ax, ay], [bx, by]] = [control(1 / 3, first), control(2 / 3, second)];
  return Array.from({ length: POINTS + 1 }, (_, at) => {
    const t = at / POINTS,
      s = 1 - t;
    return [s ** 3 * x0 + 3 * s * s * t * ax + 3 * s * t * t * bx + t ** 3 * x1, s ** 3 * y0 + 3 * s * s * t * ay + 3 * s * t * t * by + t ** 3 * y1];
  });
}

/**
 * Points of the way from one card's edge to the other's.
 * @type {(points: Spot[], from: Card, to: Card) => Spot[]}
 */
function trimmed(points, from, to) {
  const [a, b] = [boxOf(from), boxOf(to)];
  const first = points.findIndex(([x, y]) => !inside(x, y, a));
  const last = points.findLastIndex(([x, y]) => !inside(x, y, b));
  if (first < 0 || last < first) return points;
  return points.slice(Math.max(0, first - 1), last + 2);
}

/**
 * Adds `points` to each pair: the used ones choose their ways first, so that others keep off them.
 * @type {<P extends Pair & { used?: boolean }>(pairs: P[], layout: Pick<Layout, "cards" | "byName">, look: { width: number, height: number, isUsed: (pair: P) => boolean }) => (P & { points: Spot[] })[]}
 */
export function route(pairs, layout, { width, height, isUsed }) {
  const cards = layout.cards;
  const middle = [width / 2, height / 2];
  const spread = cards.map((card) => boxOf(card, CLEAR));
  /** @type {(points: Spot[], from: Card, to: Card) => number} */
  const crossings = (points, from, to) => {
    let crossed = 0;
    for (let at = 1; at < POINTS; at++) {
      const [x, y] = points[at];
      if (x < 4 || y < TOP || x > width - 4 || y > height - 4) crossed += 2;
      for (let card = 0; card < cards.length; card++) if (cards[card] !== from && cards[card] !== to && inside(x, y, spread[card])) crossed += 1;
    }
    return crossed;
  };
  return pairs.map((pair) => {
    const [from, to] = [there(layout.byName.get(pair.a)), there(layout.byName.get(pair.b))];
    const [start, end] = [anchor(from), anchor(to)];
    // bows go towards the middle, where cards of a ring leave room
    const [nx, ny] = [-(end[1] - start[1]), end[0] - start[0]];
    const inwards = (middle[0] - (start[0] + end[0]) / 2) * nx + (middle[1] - (start[1] + end[1]) / 2) * ny >= 0 ? 1 : -1;
    let best = /** @type {{ points: Spot[], crossed: number, price: number } | null} */ (null);
    /** @type {(first: number, second: number, price: number) => void} */
    const offer = (first, second, price) => {
      if (best && price >= best.price) return;
      const points = curve(start, end, first * inwards, second * inwards);
      const crossed = crossings(points, from, to);
      const hidden = isUsed(pair) ? Math.max(0, VISIBLE - lengthOf(trimmed(points, from, to))) / 8 : 0;
      if (!best || 10 * crossed + hidden + price < best.price) best = { points, crossed, price: 10 * crossed + hidden + price };
    };
    const bows = isUsed(pair) ? BOWS : [0.03, ...BOWS];
    bows.forEach((bow, at) => offer(bow, bow, at));
    if (there(best).crossed)
      for (const first of [0.5, -0.5, 1, -1, 0]) for (const second of [-0.5, 0.5, 0, 1, -1]) offer(first, second, 12 + Math.abs(first) + Math.abs(second));
    return { ...pair, points: trimmed(there(best).points, from, to) };
  });
}

/**
 * Middles of labels by pair: on its line, over no card and no other label (`kept` are there already), off other `lines`.
 * @type {(pairs: Way[], layout: Pick<Layout, "cards">, look: { width: number, height: number, must: Set<string>, kept: Tag[], lines: Way[] }) => Map<string, Tag>}
 */
export function labelPlaces(pairs, layout, { width, height, must, kept, lines }) {
  const taken = [...layout.cards.map((card) => boxOf(card, 3)), ...kept.map(({ box }) => box)];
  /** @type {Map<string, Tag>} */
  const places = new Map();
  const order = [...pairs].sort((one, other) => Number(must.has(other.key)) - Number(must.has(one.key)) || lengthOf(one.points) - lengthOf(other.points));
  for (const { key, points } of order) {
    let best = /** @type {Tag | null} */ (null);
    /** @type {(x: number, y: number, price: number) => void} */
    const offer = (x, y, price) => {
      const box = [x - LABEL_W / 2, y - LABEL_H / 2, x + LABEL_W / 2, y + LABEL_H / 2];
      if (box[0] < 2 || box[1] < TOP || box[2] > width - 2 || box[3] > height - 2) return;
      if (best && price >= best.price) return;
      const blocked = taken.some((other) => meet(box, other));
      if (blocked && !must.has(key)) return;
      const crossed = lines.reduce((sum, line) => sum + (line.key !== key && line.points.some(([px, py]) => inside(px, py, box)) ? 1 : 0), 0);
      const total = price + 3 * crossed + (blocked ? 40 : 0);
      if (!best || total < best.price) best = { x, y, box, price: total };
    };
    SHARES.forEach((share, at) => {
      const spot = points[Math.round(share * (points.length - 1))];
      const [before, after] = [
        points[Math.max(0, Math.round(share * (points.length - 1)) - 1)],
        points[Math.min(points.length - 1, Math.round(share * (points.length - 1)) + 1)],
      ];
      const far = Math.hypot(after[0] - before[0], after[1] - before[1]) || 1;
      const [nx, ny] = [-(after[1] - before[1]) / far, (after[0] - before[0]) / far];
      const half = (Math.abs(nx) * LABEL_W) / 2 + (Math.abs(ny) * LABEL_H) / 2;
      offer(spot[0], spot[1], at * 0.4);
      for (const off of [3, 16])
        for (const side of [1, -1]) offer(spot[0] + side * nx * (half + off), spot[1] + side * ny * (half + off), 2 + off / 5 + at * 0.4);
    });
    if (best) {
      places.set(key, best);
      taken.push(best.box.map((edge, at) => edge + (at < 2 ? -2 : 2)));
    }
  }
  return places;
}

/** @type {(points: Spot[]) => number} */
export const lengthOf = (points) => points.slice(1).reduce((sum, [x, y], at) => sum + Math.hypot(x - points[at][0], y - points[at][1]), 0);

/**
 * The distance of a point from a way.
 * @type {(points: Spot[], x: number, y: number) => number}
 */
export function farFrom(points, x, y) {
  let least = Infinity;
  for (let at = 1; at < points.length; at++) {
    const [[x0, y0], [x1, y1]] = [points[at - 1], points[at]];
    const [dx, dy] = [x1 - x0, y1 - y0];
    const t = Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(x - x0 - t * dx, y - y0 - t * dy));
  }
  return least;
}
