// Where each region's devices stand on the screen: a tidy cluster around the region's city, pushed aside where
// clusters would cover each other, one disc with a count where there is no room for devices.

const ROUNDS = 60;
const FARTHEST = 96; // pixels that a cluster may stand from its city before it becomes a count
const CROWDED = 60; // pixels that a count may stand away before names go, to be shown where pointed at
const FULLEST = 0.34; // of the view, in clusters
const NAME_HEIGHT = 15;
const TRAY_ROW = 22;
export const TRAY_HEAD = 20;

/** Pixels across a device: smaller where they are many, larger close up. */
export function dotSize(nDevices, scale) {
  const size = nDevices <= 40 ? 16 : nDevices <= 100 ? 14 : nDevices <= 160 ? 12 : 10;
  return Math.min(20, size * Math.max(1, (scale / 12) ** 0.3));
}

/**
 * Groups {name, devices, x, y, home, radius, slots, counted, named} in screen pixels; `regions` are
 * {name, devices, place}. Those without a place are not among them.
 */
export function clusters(regions, camera, width, height, dot, nameWidth) {
  const groups = regions.filter(({ place }) => place).map((region) => {
    const home = camera.toScreen(camera.turned(region.place[0]), region.y);
    return { ...region, home };
  });
  for (const [counted, named] of [[false, true], [true, true], [true, false]]) {
    for (const group of groups) shape(group, dot, counted, named ? nameWidth(group.name) : 0);
    const seen = groups.filter(({ home: [x, y] }) => x > -200 && x < width + 200 && y > -200 && y < height + 200);
    apart(seen);
    const area = seen.reduce((sum, { radius }) => sum + Math.PI * radius ** 2, 0);
    const far = Math.max(0, ...seen.map(({ x, y, home }) => Math.hypot(x - home[0], y - home[1])));
    if (far <= (counted ? CROWDED : FARTHEST) && area <= FULLEST * width * height) break;
  }
  return groups;
}

function shape(group, dot, counted, nameWide) {
  const n = group.devices.length;
  group.counted = counted && n > 1;
  group.slots = group.counted ? [] : slots(n).map(([x, y]) => [x * dot * 1.14, y * dot * 1.14]);
  const reach = Math.max(0, ...group.slots.map(([x, y]) => Math.hypot(x, y)));
  group.radius = group.counted ? 9 + 2.2 * Math.sqrt(Math.min(n, 100)) : n ? reach + dot * 0.5 + 4 : 6;
  [group.x, group.y] = group.home;
  group.named = nameWide > 0;
  group.half = [Math.max(group.radius, nameWide / 2) + 3, group.radius + (group.named ? NAME_HEIGHT / 2 + 2 : 2)];
}

/** Boxes, each a disc with the name above it, step aside from each other, away from each other's cities. */
function apart(groups) {
  for (let round = 0; round < ROUNDS; round++) {
    let moved = false;
    for (let one = 0; one < groups.length; one++) {
      for (let two = one + 1; two < groups.length; two++) {
        const [a, b] = [groups[one], groups[two]];
        const overX = a.half[0] + b.half[0] - Math.abs(b.x - a.x);
        const overY = a.half[1] + b.half[1] - Math.abs(b.y - a.y);
        if (overX <= 0.5 || overY <= 0.5) continue;
        moved = true;
        const [dx, dy] = direction(a, b, two);
        // as far as one side of the boxes is free: no further than that takes in this direction
        const step = 0.5 * Math.min(overX / Math.max(Math.abs(dx), 0.2), overY / Math.max(Math.abs(dy), 0.2)) + 0.3;
        a.x -= step * dx; a.y -= step * dy;
        b.x += step * dx; b.y += step * dy;
      }
    }
    if (!moved) return;
  }
}

/** From one city to another; two in one place part in a direction of their own. */
function direction(a, b, turn) {
  const [dx, dy] = [b.home[0] - a.home[0], b.home[1] - a.home[1]];
  const far = Math.hypot(dx, dy);
  return far > 0.5 ? [dx / far, dy / far] : [Math.cos(turn), Math.sin(turn)];
}

const kept = new Map();

/** n places in rows about as many as they are long, fuller ones in the middle, one apart, their middle at 0. */
export function slots(n) {
  if (kept.has(n)) return kept.get(n);
  const rows = Math.max(1, Math.round(Math.sqrt(n)));
  const [base, extra] = [Math.floor(n / rows), n % rows];
  const first = (rows - extra) / 2;
  const places = [];
  for (let row = 0; row < rows; row++) {
    const outer = extra === 2 && rows === 3; // 3, 2, 3 packs closer than 2, 3, 3
    const length = base + (outer ? row !== 1 : row >= Math.floor(first) && row < Math.floor(first) + extra);
    for (let at = 0; at < length; at++) places.push([at - (length - 1) / 2, row - (rows - 1) / 2]);
  }
  kept.set(n, places);
  return places;
}

/**
 * The regions without a place, in rows at the lower edge: {groups, top}. Groups are as on the map, `tray` of them
 * true, with slots beside a name.
 */
export function tray(regions, width, height, dot, nameWidth) {
  const lost = regions.filter(({ place, devices }) => !place && devices.length);
  if (!lost.length) return { groups: [], top: height, more: 0 };
  for (const counted of [false, true]) {
    const pitch = dot * 1.25;
    const rows = [[]];
    let x = 10;
    for (const region of lost) {
      const columns = counted ? 1 : Math.min(region.devices.length, 24);
      const wide = nameWidth(region.name || "no region") + 12 + (counted ? 32 : columns * pitch) + 14;
      if (x > 10 && x + wide > width - 10) { rows.push([]); x = 10; }
      const lines = counted ? 1 : Math.ceil(region.devices.length / columns);
      rows.at(-1).push({ region, x, wide, columns, lines });
      x += wide;
    }
    const heights = rows.map((row) => Math.max(...row.map(({ lines }) => lines)) * (counted ? TRAY_ROW : Math.max(TRAY_ROW, pitch)) + 2);
    const total = heights.reduce((sum, each) => sum + each, 0);
    if (!counted && total > height * 0.26) continue;
    const most = Math.max(1, Math.floor((height * 0.34 - TRAY_HEAD) / (TRAY_ROW + 2)));
    const shown = counted ? rows.slice(0, most) : rows;
    const tall = heights.slice(0, shown.length).reduce((sum, each) => sum + each, 0) + TRAY_HEAD + 6;
    const top = height - tall;
    let y = top + TRAY_HEAD;
    const groups = shown.flatMap((row, at) => {
      const here = row.map(({ region, x: left, columns, wide }) => {
        const label = nameWidth(region.name || "no region") + 12;
        const n = region.devices.length;
        const places = counted ? [] : region.devices.map((_, index) => [
          label + (index % columns + 0.5) * pitch, Math.floor(index / columns) * pitch]);
        return {
          ...region, tray: true, counted: counted && n > 0, x: left, y: y + TRAY_ROW / 2, slots: places, label, wide: wide - 10,
          radius: counted ? 11 : 0, bubble: [left + label + 14, y + TRAY_ROW / 2],
        };
      });
      y += heights[at];
      return here;
    });
    return { groups, top, more: lost.length - groups.length };
  }
}

/** Pixels by which clusters reach beyond their cities on each side, with room for the eye. */
export function overhang(groups, below) {
  const most = (values) => Math.max(...values);
  return [
    most(groups.map(({ home }) => -home[0])) - most(groups.map(({ x, half }) => half[0] - x)),
    most(groups.map(({ home }) => -home[1])) - most(groups.map(({ y, radius }) => radius + 18 - y)),
    most(groups.map(({ x, half }) => x + half[0])) - most(groups.map(({ home }) => home[0])),
    most(groups.map(({ y, radius }) => y + radius)) - most(groups.map(({ home }) => home[1])) + below,
  ].map((reach, side) => Math.max(24, (side < 2 ? -reach : reach) + 14));
}
