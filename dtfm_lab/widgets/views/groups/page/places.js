// Where everything stands, step by step: devices in the network, then in their groups, then in the nodes.
/** @import { Point } from "shared/types.d.ts" */
/** @import { Dot, Ground, Group, Network, Placed, Strip } from "../types.d.ts" */
export const MOST_IN_RING = 16; // maximum groups; with more, a node-link drawing is a tangle
const WIDEST = 78,
  SMALLEST = 42; // a group's radius in (b)
const BIG_DOT = 12; // a device's radius there
const HEART = 13; // room for a letter in the middle of a group
const DOT = 4.6; // a device's radius once its group is a node
const LABEL_X = 108,
  LABEL_Y = 40; // room for words outside the ring
const STRIP = 40;

/** @typedef {Point & { dx: number, dy: number }} Middle */
/** @typedef {{ dots: Point[], r: number, radius: number }} Rings */

/**
 * `groups`: {x, y, dx, dy, open, shut}, a middle, the outward direction, the radius in (b) and from (c) on.
 * `devices`: Maps of name -> {x, y, r} for "a", "b" and "c", which serves to (e); `regions` and `strip` in pixels.
 * @type {(plan: { groups: Group[], idle: string[], network: Network }, width: number, height: number) => Placed}
 */
export function layout({ groups, idle, network }, width, height) {
  const strip = idle.length ? { x: 14, y: height - STRIP - 8, width: width - 28, height: STRIP } : null;
  const room = height - (strip ? STRIP + 8 : 0);
  const size = groups[0]?.devices.length ?? 0;
  const { places, reach } = groups.length > MOST_IN_RING ? inRows(groups.length, width, room) : onArc(groups.length, width, room, roomFor(size));
  const wide = inRings(size, reach, HEART, BIG_DOT);
  const tight = tightRings(size, reach);
  const { a, regions } = inNetwork(network, groups, idle, width, height);
  const b = new Map(),
    c = new Map();
  groups.forEach(({ devices }, stage) =>
    devices.forEach((name, replica) => {
      const { x, y } = places[stage];
      b.set(name, { x: x + wide.dots[replica].x, y: y + wide.dots[replica].y, r: wide.r });
      c.set(name, { x: x + tight.dots[replica].x, y: y + tight.dots[replica].y, r: tight.r });
    }),
  );
  inStrip(idle, strip).forEach((place, index) => {
    b.set(idle[index], place);
    c.set(idle[index], place);
  });
  return { groups: places.map((place) => ({ ...place, open: reach, shut: tight.radius })), devices: { a, b, c }, regions, strip };
}

/**
 * An ellipse in path order from the lower left, clockwise, open below: a path has two ends.
 * @type {(n: number, width: number, height: number, widest: number) => { places: Middle[], reach: number }}
 */
function onArc(n, width, height, widest) {
  for (let reach = widest; ; reach -= 2) {
    const places = arc(n, width, height, reach);
    let gap = Infinity;
    for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) gap = Math.min(gap, Math.hypot(places[i].x - places[j].x, places[i].y - places[j].y));
    if (reach <= 12 || gap >= 2 * reach + 18) return { places, reach };
  }
}

/** @type {(n: number, width: number, height: number, reach: number) => Middle[]} */
function arc(n, width, height, reach) {
  const [cx, cy] = [width / 2, height / 2];
  const rx = Math.max(40, width / 2 - reach - LABEL_X);
  const ry = Math.max(30, height / 2 - reach - LABEL_Y);
  if (n <= 1) return [{ x: cx, y: cy, dx: 0, dy: 1 }];
  if (n === 2) return [-1, 1].map((side) => ({ x: cx + side * Math.min(rx, 190), y: cy, dx: 0, dy: 1 }));
  const sweep = n === 3 ? Math.PI : 2 * Math.PI * ((n - 1) / n);
  const start = n === 3 ? Math.PI : -Math.PI / 2 - sweep / 2;
  return evenAngles(rx, ry, start, sweep, n).map((angle) => {
    const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
    return { x: cx + rx * dx, y: cy + ry * dy + (n === 3 ? ry / 2 : 0), dx, dy };
  });
}

/**
 * Angles that cut the ellipse's arc, not its angle, into equal parts: labels keep their distance.
 * @type {(rx: number, ry: number, start: number, sweep: number, n: number) => number[]}
 */
function evenAngles(rx, ry, start, sweep, n) {
  const fine = 720;
  const lengths = [0];
  /** @type {(step: number) => [number, number]} */
  const point = (step) => [rx * Math.cos(start + (sweep * step) / fine), ry * Math.sin(start + (sweep * step) / fine)];
  for (let step = 1; step <= fine; step++) {
    const [[x0, y0], [x1, y1]] = [point(step - 1), point(step)];
    lengths.push(lengths[step - 1] + Math.hypot(x1 - x0, y1 - y0));
  }
  let step = 0;
  return Array.from({ length: n }, (_, index) => {
    const wanted = (lengths[fine] * index) / (n - 1);
    while (step < fine && lengths[step] < wanted) step++;
    return start + (sweep * step) / fine;
  });
}

/**
 * Row by row, to and fro, so that neighbours on the path are neighbours.
 * @type {(n: number, width: number, height: number) => { places: Middle[], reach: number }}
 */
function inRows(n, width, height) {
  const columns = Math.max(1, Math.ceil(Math.sqrt((n * width) / height)));
  const rows = Math.ceil(n / columns);
  const cell = Math.min((width - 16) / columns, (height - 16) / rows);
  const [left, top] = [(width - cell * columns) / 2, (height - cell * rows) / 2];
  const places = Array.from({ length: n }, (_, index) => {
    const row = Math.floor(index / columns);
    const column = row % 2 ? columns - 1 - (index % columns) : index % columns;
    return { x: left + (column + 0.5) * cell, y: top + (row + 0.5) * cell, dx: 0, dy: 1 };
  });
  return { places, reach: cell / 2 - 3 };
}

/**
 * Dots on rings within a radius, as large as they can be; none nearer to the middle than `inner`.
 * @type {(n: number, radius: number, inner: number, largest: number) => Rings}
 */
function inRings(n, radius, inner, largest) {
  for (let r = largest; ; r -= 0.25) {
    /** @type {{ at: number, holds: number }[]} */
    const rings = [];
    for (let at = radius - r - 3; at >= inner + r; at -= 2.3 * r) rings.push({ at, holds: Math.floor((2 * Math.PI * at) / (2.3 * r)) });
    if (r > 1 && rings.reduce((sum, { holds }) => sum + holds, 0) < n) continue;
    /** @type {Point[]} */
    const dots = [];
    for (const { at, holds } of rings.length ? rings : [{ at: radius / 2, holds: n }]) {
      const some = Math.min(holds, n - dots.length);
      for (let k = 0; k < some; k++) {
        const angle = (2 * Math.PI * k) / some - Math.PI / 2;
        dots.push({ x: at * Math.cos(angle), y: at * Math.sin(angle) });
      }
    }
    while (dots.length < n) dots.push({ x: 0, y: 0 });
    return { dots, r, radius };
  }
}

/**
 * The radius that a group's devices need in (b).
 * @type {(n: number) => number}
 */
function roomFor(n) {
  let radius = SMALLEST;
  while (radius < WIDEST && inRings(n, radius, HEART, BIG_DOT).r < BIG_DOT) radius += 2;
  return radius;
}

/**
 * The smallest node that holds its dots at their usual size, or the whole reach with smaller ones.
 * @type {(n: number, reach: number) => Rings}
 */
function tightRings(n, reach) {
  for (let radius = Math.min(reach, 24); radius < reach; radius += 2) {
    const rings = inRings(n, radius, HEART, DOT);
    if (rings.r === DOT) return rings;
  }
  return inRings(n, reach, HEART, DOT);
}

/** @type {(names: string[], strip: Strip) => Dot[]} */
function inStrip(names, strip) {
  if (!strip) return [];
  const left = strip.x + 64;
  for (let r = 7; ; r -= 0.5) {
    const columns = Math.max(1, Math.floor((strip.width - 76) / (2.5 * r)));
    const rows = Math.max(1, Math.floor((strip.height - 6) / (2.5 * r)));
    if (r > 1.5 && columns * rows < names.length) continue;
    const used = Math.ceil(names.length / columns);
    return names.map((_, index) => ({
      x: left + ((index % columns) + 0.5) * 2.5 * r,
      y: strip.y + strip.height / 2 + (Math.floor(index / columns) - (used - 1) / 2) * 2.5 * r,
      r,
    }));
  }
}

/**
 * As they are drawn or measured; without a network, around a circle.
 * @type {(network: Network, groups: Group[], idle: string[], width: number, height: number) => { a: Map<string, Dot>, regions: Ground[] }}
 */
function inNetwork(network, groups, idle, width, height) {
  const names = [...groups.flatMap(({ devices }) => devices), ...idle];
  const around = names.map((name, index) => {
    const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
    return { name, x: Math.cos(angle) * names.length * 0.3, y: Math.sin(angle) * names.length * 0.3 };
  });
  const devices = network.devices?.length ? network.devices : around;
  const grounds = network.regions ?? [];
  const corners = [
    ...devices,
    ...grounds.flatMap(({ x, y, half }) => [
      { x: x - half[0], y: y - half[1] },
      { x: x + half[0], y: y + half[1] },
    ]),
  ];
  const [xs, ys] = [corners.map(({ x }) => x), corners.map(({ y }) => y)];
  const [low, high] = [
    [Math.min(...xs), Math.min(...ys)],
    [Math.max(...xs), Math.max(...ys)],
  ];
  const scale = Math.min((width - 90) / Math.max(1, high[0] - low[0]), (height - 70) / Math.max(1, high[1] - low[1]), 110);
  /** @type {(place: Point) => Point} */
  const put = ({ x, y }) => ({
    x: width / 2 + (x - (low[0] + high[0]) / 2) * scale,
    y: height / 2 + (y - (low[1] + high[1]) / 2) * scale,
  });
  const r = Math.min(12, Math.max(2.5, 0.36 * scale));
  const a = new Map(devices.map((device) => [device.name, { ...put(device), r }]));
  /** @type {Ground[]} */
  const regions = grounds.map((ground) => ({ ...put(ground), name: ground.name, round: ground.round, half: [ground.half[0] * scale, ground.half[1] * scale] }));
  return { a, regions };
}
