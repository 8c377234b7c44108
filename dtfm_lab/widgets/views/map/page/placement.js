// Everything that stands on the map at one moment, in screen pixels, and what is under the pointer.
import { clusters, dotSize, tray } from "./clusters.js";
import { routes, widths, worthDrawing } from "./lines.js";
import { millerY } from "./camera.js";

const NEAR_LINE = 6; // pixels
const NEAR_CITY = 38;
const SAME_PLACE = 0.3; // degrees: a city and a region so near are one

/** Regions {name, devices, place, y} of a document, loose devices as region "" if there are any. */
export function regionsOf(document, placeOf) {
  const members = new Map(document.regions.map(({ name }) => [name, []]));
  for (const device of document.devices) {
    if (!members.has(device.region)) members.set(device.region, []);
    members.get(device.region).push(device);
  }
  return [...members].map(([name, devices]) => {
    const place = name ? placeOf(name) : null;
    return { name, devices, place, y: place ? millerY(place[1]) : 0 };
  });
}

/** `chosen` are names of regions whose lines are always drawn; `shown(name)` is as much of a name as there is room for. */
export function placementOf({ document, regions, lines, camera, width, height, nameWidth, shown, chosen }) {
  const dot = dotSize(document.devices.length, camera.scale);
  const groups = clusters(regions, camera, width, height, dot, nameWidth);
  const lost = tray(regions, width, height, Math.min(dot, 16), nameWidth);
  const byName = new Map(groups.map((group) => [group.name, group]));
  const joined = lines.filter(({ a, b }) => byName.get(a)?.devices.length && byName.get(b)?.devices.length);
  const drawn = worthDrawing(joined, groups.length, chosen);
  const widthOf = widths(drawn);
  const arcs = drawn.map((line) => ({ ...line, width: widthOf(line), routes: routes(byName.get(line.a), byName.get(line.b), camera) }));
  const dots = [...groups, ...lost.groups].flatMap((group) => group.slots.map(([dx, dy], at) => ({
    device: group.devices[at], group, x: group.x + dx, y: group.y + dy,
  })));
  return { width, height, dot, groups, byName, lost, arcs, dots, shown };
}

/** {kind: "device" | "region" | "line", ...} under a point, or null. */
export function under(placement, x, y) {
  const reach = placement.dot / 2 + 2;
  const dot = placement.dots.findLast((one) => Math.hypot(x - one.x, y - one.y) <= reach);
  if (dot) return { kind: "device", name: dot.device.name, group: dot.group };
  const group = [...placement.groups, ...placement.lost.groups].findLast((one) => (one.tray ? inTray(one, x, y) : inCluster(one, x, y)));
  if (group) return { kind: "region", name: group.name, group };
  if (y >= placement.lost.top) return null;
  let nearest = { far: NEAR_LINE, arc: null };
  for (const arc of placement.arcs)
    for (const route of arc.routes)
      for (let at = 1; at < route.length; at++) {
        const far = fromSegment(x, y, route[at - 1], route[at]);
        if (far < nearest.far) nearest = { far, arc };
      }
  return nearest.arc && { kind: "line", a: nearest.arc.a, b: nearest.arc.b };
}

const inCluster = (group, x, y) => Math.hypot(x - group.x, y - group.y) <= group.radius
  || (Math.abs(x - group.x) <= group.half[0] && y < group.y && y > group.y - group.radius - 16);

const inTray = (group, x, y) => x >= group.x - 3 && x <= group.x + group.wide && Math.abs(y - group.y) <= 11;

function fromSegment(x, y, [x0, y0], [x1, y1]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const t = Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - x0 - t * dx, y - y0 - t * dy);
}

/** The region or city that a device let go at (x, y) belongs to: {name, x, y, known}, or null if none is near. */
export function target(placement, cities, camera, x, y) {
  if (y >= placement.lost.top) return null;
  const inside = placement.groups.find((group) => inCluster(group, x, y));
  if (inside) return { name: inside.name, x: inside.x, y: inside.y, known: true };
  let best = null;
  const offer = (name, px, py, known) => {
    const far = Math.hypot(x - px, y - py) - (known ? 4 : 0); // a region before a city beside it
    if (far < NEAR_CITY && (!best || far < best.far)) best = { name, x: px, y: py, known, far };
  };
  for (const { name, home } of placement.groups) offer(name, ...home, true);
  for (const { name, place } of freeCities(cities, placement.groups)) offer(name, ...camera.toScreen(camera.turned(place[0]), millerY(place[1])), false);
  return best;
}

/** Cities where no region stands. */
export const freeCities = (cities, groups) => cities.filter(({ place }) => !standing(groups, place));

/** The region or group that stands where a place is, if any does. */
export const standing = (regions, [x, y]) => regions.find(({ place }) => place && Math.abs(x - place[0]) < SAME_PLACE && Math.abs(y - place[1]) < SAME_PLACE);
