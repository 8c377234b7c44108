// What joins two regions on the map: which line of the document says so, and the way along the globe.
import { endsOf } from "../../editor/page/lines.js";
import { millerY } from "./camera.js";

const POINTS = 40;
const MOST_REGIONS = 12;
const FASTEST = 2; // lines of each region that are drawn where there are more regions

const key = (a, b) => `${a}\u0000${b}`;

/** Lines {a, b, there, back, kind: "line" | "filled" | "default", distance_km, gbps} between these regions. */
export function linesBetween(document, filled, names) {
  const said = new Map();
  const oneWay = (line) => !line.regions;
  for (const line of [...document.between].sort((one, other) => oneWay(one) - oneWay(other))) { // one way overrules both
    const [a, b] = endsOf(line);
    said.set(key(a, b), line);
    if (!oneWay(line)) said.set(key(b, a), line);
  }
  const rule = new Map(filled.map((line) => [key(...line.regions), line]));
  const lines = [];
  for (let one = 0; one < names.length; one++) {
    for (let two = one + 1; two < names.length; two++) {
      const [a, b] = [names[one], names[two]];
      const guess = rule.get(key(a, b)) ?? rule.get(key(b, a));
      const [there, back] = [said.get(key(a, b)), said.get(key(b, a))].map((line) => line ?? guess ?? document.default);
      const kind = said.has(key(a, b)) || said.has(key(b, a)) ? "line" : guess ? "filled" : "default";
      lines.push({ a, b, there, back, kind, distance_km: guess?.distance_km, gbps: Math.min(there.bandwidth_gbps, back.bandwidth_gbps) });
    }
  }
  return lines;
}

/** Those worth drawing: all, or the fastest of each region and those of the regions in `wanted`. */
export function worthDrawing(lines, nRegions, wanted) {
  if (nRegions <= MOST_REGIONS) return lines;
  const keep = new Set(lines.filter(({ a, b }) => wanted.has(a) || wanted.has(b)));
  const taken = new Map();
  for (const line of [...lines].sort((one, other) => other.gbps - one.gbps)) {
    for (const name of [line.a, line.b]) {
      const count = taken.get(name) ?? 0;
      if (count < FASTEST) { keep.add(line); taken.set(name, count + 1); }
    }
  }
  return lines.filter((line) => keep.has(line));
}

/** 1 pixel for the slowest to 6 for the fastest, by the logarithm. */
export function widths(lines) {
  const logs = lines.map(({ gbps }) => Math.log10(Math.max(gbps, 1e-9)));
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  return (line) => (high - low < 0.02 ? 2.2 : 1 + 4.5 * ((Math.log10(Math.max(line.gbps, 1e-9)) - low) / (high - low)));
}

const ways = new Map();

/** The great circle between two places (longitude, latitude) in the plane of the map, (POINTS + 1) of [x, y]. */
export function greatCircle(a, b) {
  const name = `${a}|${b}`;
  if (ways.has(name)) return ways.get(name);
  const [from, to] = [a, b].map(onSphere);
  const angle = Math.acos(Math.min(1, Math.max(-1, from[0] * to[0] + from[1] * to[1] + from[2] * to[2])));
  const points = [];
  let before = a[0];
  for (let at = 0; at <= POINTS; at++) {
    const t = at / POINTS;
    const [f, g] = angle > 1e-6 ? [Math.sin((1 - t) * angle) / Math.sin(angle), Math.sin(t * angle) / Math.sin(angle)] : [1 - t, t];
    const [x, y, z] = [0, 1, 2].map((axis) => f * from[axis] + g * to[axis]);
    let longitude = (Math.atan2(y, x) * 180) / Math.PI;
    longitude += 360 * Math.round((before - longitude) / 360);
    before = longitude;
    points.push([longitude, millerY((Math.atan2(z, Math.hypot(x, y)) * 180) / Math.PI)]);
  }
  if (ways.size > 4000) ways.clear();
  ways.set(name, points);
  return points;
}

function onSphere([longitude, latitude]) {
  const [l, p] = [longitude, latitude].map((degrees) => (degrees * Math.PI) / 180);
  return [Math.cos(p) * Math.cos(l), Math.cos(p) * Math.sin(l), Math.sin(p)];
}

/** The way between two clusters on the screen, in one piece or in two that leave and come back at the map's edges. */
export function routes(one, other, camera) {
  const way = greatCircle(one.place, other.place);
  const starts = camera.turned(one.place[0]) - one.place[0];
  const ends = camera.turned(other.place[0]) - way.at(-1)[0];
  const along = (turn) => way.map(([x, y], at) => {
    const [px, py] = camera.toScreen(x + turn, y);
    const t = at / POINTS;
    return [px + (1 - t) * (one.x - one.home[0]) + t * (other.x - other.home[0]), py + (1 - t) * (one.y - one.home[1]) + t * (other.y - other.home[1])];
  });
  return Math.abs(starts - ends) < 1 ? [along(starts)] : [along(starts), along(ends)];
}
