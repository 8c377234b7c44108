// Places for devices on a screen that is too small for their own: regions' blocks in as many columns as there is room for.
import { moveDevices } from "./document.js";
import { overlap } from "./geometry.js";
import { LEAST_NAME, nearest, sizes } from "./style.js";
/** @import { Device, Document, Point } from "shared/types.d.ts" */
/** @import { Rectangle } from "../types.d.ts" */

/** @typedef {{ width: number, height: number }} Room pixels of the screen */

const TITLE = 16; // pixels of a region's title that stands above its box
const PHONE = { width: 360, height: 120 }; // the room on a phone
const LEAST = { x: 20, y: 8 }; // pixels between boxes, and between a box and the next title, on a phone
const MORE = { x: 0.3, y: 0.12, most: 90 }; // of what a room has above that, and pixels at most: links have labels there
const WORTH = 1.2; // times larger, from which on other places are worth it
const MOST_BETWEEN = 3; // of the distance of neighbours: pixels between boxes where there is room

/**
 * The document with regions' blocks placed by the room on the screen, where their boxes would overlap or be tiny as they
 * stand: on a narrow screen. What somebody has placed by hand stays.
 * @type {(document: Document, room: Room | null) => Document}
 */
export function fitting(document, room) {
  const blocks = blocksOf(document);
  const isEmpty = document.regions.some(({ name }) => blocks.every(([{ region }]) => region !== name));
  if (!room || !blocks.length || isEmpty || ![...blocks, blocks.map(([first]) => first)].every(isTidy)) return document;
  const near = nearest(document.devices);
  const before = apartAs(document.devices, near, room);
  if (before >= LEAST_NAME) return document;
  const isHost = document.devices.some(({ members }) => members && members.length > 1);
  const packed = packing(
    blocks.map(({ length }) => length),
    room,
    isHost,
  );
  if (!packed || packed.apart < before || (packed.apart < WORTH * before && !boxesMeet(blocks, before / near, near))) return document;
  const scale = near / packed.apart;
  const places = blocks.flatMap((block, at) =>
    block.map(({ name }, index) => {
      const { x, y, columns } = packed.blocks[at];
      return /** @type {[string, Point]} */ ([
        name,
        { x: rounded(scale * x + (index % columns) * near), y: rounded(scale * y + Math.floor(index / columns) * near) },
      ]);
    }),
  );
  return moveDevices(document, new Map(places));
}

/**
 * An edited document with the places of `drawn`, if it was `shown` with others and the edit leaves every device where it
 * was shown. If it moves, adds or removes one, all keep the places on the screen.
 * @type {(next: Document, shown: Document, drawn: Document) => Document}
 */
export function inOwnPlaces(next, shown, drawn) {
  /** @type {(document: Document) => string[]} */
  const places = ({ devices }) => devices.map(({ x, y }) => `${x} ${y}`);
  if (shown === drawn || places(next).join() !== places(shown).join()) return next;
  return { ...next, devices: next.devices.map((device, at) => ({ ...device, x: drawn.devices[at].x, y: drawn.devices[at].y })) };
}

/** @type {(value: number) => number} */
const rounded = (value) => Math.round(value * 10) / 10;

/** @type {(document: Document) => Device[][]} */
function blocksOf({ devices }) {
  /** @type {Map<string, Device[]>} */
  const blocks = new Map();
  for (const device of devices) blocks.set(device.region, [...(blocks.get(device.region) ?? []), device]);
  return [...blocks.values()];
}

/**
 * Whether devices stand evenly in rows from the left, as nobody places them by hand.
 * @type {(devices: Device[]) => boolean}
 */
function isTidy(devices) {
  const [{ x: left }] = devices;
  let step = NaN; // of this row
  return devices.every(({ x, y }, at) => {
    const before = devices[at - 1];
    if (!before || y !== before.y) step = NaN;
    else if (Number.isNaN(step)) step = x - before.x;
    return !before || (y === before.y ? Math.abs(x - before.x - step) < 1 : y > before.y && x === left);
  });
}

/**
 * Pixels that a row of `n` neighbours takes with its region's box around it.
 * @type {(n: number, apart: number, isHost?: boolean) => number}
 */
function extent(n, apart, isHost = false) {
  const { width, padding, host } = sizes(apart, 1);
  return (n - 1) * apart + (isHost ? host.width : width) + 2 * padding;
}

/**
 * The largest distance of `n` neighbours in a row that is so long with its box.
 * @type {(n: number, room: number, isHost: boolean) => number}
 */
function apartIn(n, room, isHost) {
  let [low, high] = [0, 160];
  for (let round = 0; round < 20; round++) {
    const middle = (low + high) / 2;
    if (extent(n, middle, isHost) <= room) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Pixels between neighbours when devices, as they stand, are fitted into the room.
 * @type {(devices: Device[], near: number, room: Room) => number}
 */
function apartAs(devices, near, { width, height }) {
  /** @type {(values: number[]) => number} */
  const across = (values) => 1 + (Math.max(...values) - Math.min(...values)) / near;
  return Math.min(apartIn(across(devices.map(({ x }) => x)), width, false), apartIn(across(devices.map(({ y }) => y)), height, false));
}

/**
 * Whether regions' boxes, with the titles above them, meet at a zoom.
 * @type {(blocks: Device[][], zoom: number, near: number) => boolean}
 */
function boxesMeet(blocks, zoom, near) {
  const { width, padding } = sizes(zoom, near);
  const around = width / 2 + padding;
  /** @type {(block: Device[]) => Rectangle} */
  const boxOf = (block) => {
    const [x, y] = [block.map((device) => zoom * device.x), block.map((device) => zoom * device.y)];
    return { x1: Math.min(...x) - around, x2: Math.max(...x) + around, y1: Math.min(...y) - around - TITLE, y2: Math.max(...y) + around };
  };
  const boxes = blocks.map(boxOf);
  return boxes.some((one, at) => boxes.slice(at + 1).some((other) => overlap(one, other)));
}

/**
 * Blocks of these counts in rows, as far apart inside as the room allows: pixels between neighbours, and of each block
 * its first device and columns. Null if there is no room at all.
 * @type {(counts: number[], room: Room, isHost: boolean) => { apart: number, blocks: (Point & { columns: number })[] } | null}
 */
function packing(counts, room, isHost) {
  const different = [...new Set(counts)];
  /** @type {(least: number, share: number, above: number) => number} */
  const between = (least, share, above) => Math.min(MORE.most, least + share * Math.max(0, above));
  const apartBy = {
    x: between(LEAST.x, MORE.x, room.width - PHONE.width),
    y: TITLE + between(LEAST.y, MORE.y, room.height - PHONE.height),
  };
  /** @type {{ apart: number, perRow: number, wide: number, high: number } | null} */
  let best = null;
  for (let perRow = 1; perRow <= counts.length; perRow++) {
    const nRows = Math.ceil(counts.length / perRow);
    const wide = (room.width - (perRow - 1) * apartBy.x) / perRow;
    const high = (room.height - (nRows - 1) * apartBy.y) / nRows;
    const apart = Math.min(...different.map((n) => columnsIn(n, wide, high, isHost).apart));
    if (!best || apart > best.apart) best = { apart, perRow, wide, high };
  }
  if (!best || best.apart < 1) return null;
  const { apart, perRow, wide, high } = best;
  const shapes = counts.map((n) => columnsIn(n, wide, high, isHost).columns);
  const margin = extent(1, apart, isHost) / 2; // of a block's edge from its first device
  const most = MOST_BETWEEN * apart;
  const blocks = counts.map((n, at) => ({
    columns: shapes[at],
    width: extent(shapes[at], apart, isHost),
    height: extent(Math.ceil(n / shapes[at]), apart, isHost),
  }));
  const widest = Math.max(...blocks.map(({ width }) => width));
  const tallest = Math.max(...blocks.map(({ height }) => height));
  const pitch = {
    x: widest + Math.min(wide + apartBy.x - widest, Math.max(most, apartBy.x)),
    y: tallest + Math.min(high + apartBy.y - tallest, Math.max(most, apartBy.y)),
  };
  return {
    apart,
    blocks: blocks.map(({ columns, width }, at) => ({
      columns,
      x: (at % perRow) * pitch.x + (widest - width) / 2 + margin,
      y: Math.floor(at / perRow) * pitch.y + margin,
    })),
  };
}

/**
 * The columns in which `n` neighbours stand furthest apart in a room.
 * @type {(n: number, wide: number, high: number, isHost: boolean) => { apart: number, columns: number }}
 */
function columnsIn(n, wide, high, isHost) {
  let best = { apart: 0, columns: 1 };
  for (let rows = 1; rows <= n; rows++) {
    const columns = Math.ceil(n / rows);
    if (Math.ceil(n / columns) !== rows) continue;
    const apart = Math.min(apartIn(columns, wide, isHost), apartIn(rows, high, isHost));
    if (apart > best.apart) best = { apart, columns };
  }
  return best;
}
