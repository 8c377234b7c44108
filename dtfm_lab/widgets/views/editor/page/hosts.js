// A host that stands for several GPUs: a box with a cell for each.
import { removeDevices } from "./document.js";
import { nearestFree } from "./drops.js";
/** @import { Device, Document, Link, Point } from "shared/types.d.ts" */
/** @import { Frame } from "../types.d.ts" */

const TALLEST = 1.5; // of a cell's height over its width, and the other way round
const DIVIDES = 0.7; // of the largest cells: those that fill all rows may be as small as this
const [EDGE, GAP] = [0.09, 0.05]; // of the room's lower side: around the cells, and between them

/**
 * The box of `n` cells in this room, and each cell's middle from the box's middle. Cells are as large as they can be, in
 * full rows if that costs little.
 * @type {(n: number, room: { width: number, height: number }) => { width: number, height: number, columns: number, cell: { width: number, height: number }, middles: Point[] }}
 */
export function hostBox(n, { width, height }) {
  const least = Math.min(width, height);
  const [edge, gap] = [Math.min(4, EDGE * least), Math.min(3, GAP * least)];
  const tries = Array.from({ length: n }, (_, at) => at + 1).map((columns) => {
    const rows = Math.ceil(n / columns);
    const wide = (width - 2 * edge - (columns - 1) * gap) / columns;
    const high = (height - 2 * edge - (rows - 1) * gap) / rows;
    const cell = { width: Math.min(wide, TALLEST * high), height: Math.min(high, TALLEST * wide) };
    return { columns, rows, cell, side: Math.min(cell.width, cell.height) };
  });
  const most = Math.max(...tries.map(({ side }) => side));
  const full = tries.filter(({ columns, side }) => n % columns === 0 && side >= DIVIDES * most);
  const { columns, rows, cell } = (full.length ? full : tries).reduce((best, one) => (one.side > best.side + 1e-9 ? one : best));
  const [across, down] = [cell.width + gap, cell.height + gap];
  return {
    width: columns * across - gap + 2 * edge,
    height: rows * down - gap + 2 * edge,
    columns,
    cell,
    middles: Array.from({ length: n }, (_, at) => ({
      x: ((at % columns) - (columns - 1) / 2) * across,
      y: (Math.floor(at / columns) - (rows - 1) / 2) * down,
    })),
  };
}

/**
 * Frames of a host and of its cells, around a place on the screen.
 * @type {(host: { name: string, members: string[] }, place: Point, room: { width: number, height: number }) => [string, Frame][]}
 */
export function framesOf({ name, members }, { x, y }, room) {
  const { width, height, cell, middles } = hostBox(members.length, room);
  return [
    [name, { shape: "host", x, y, width, height }],
    ...members.map((member, at) => /** @type {[string, Frame]} */ ([member, { shape: "cell", x: x + middles[at].x, y: y + middles[at].y, ...cell }])),
  ];
}

const [APART, STEP] = [60, 30]; // pixels between devices of a host that is taken apart, and of the search for their places

/**
 * The document with each device of these hosts by itself, on the nearest free places, so that each can be changed.
 * @type {(document: Document, hosts: string[]) => Document}
 */
export function takenApart(document, hosts) {
  const taken = document.devices.filter(({ name, members }) => members && members.length > 1 && hosts.includes(name));
  const membersOf = new Map(taken.map(({ name, members }) => [name, members ?? []]));
  /** @type {Point[]} */
  const placed = document.devices.filter(({ name }) => !membersOf.has(name));
  /** @type {(device: Device) => Device[]} */
  const apart = ({ members, inside, ...device }) =>
    (members ?? []).map((name) => {
      const { x, y } = nearestFree(device, STEP, (place) => placed.every((other) => Math.hypot(other.x - place.x, other.y - place.y) >= APART));
      placed.push({ x, y });
      return { ...device, name, host: device.name, x, y };
    });
  /** @type {(name: string) => string[]} */
  const ends = (name) => membersOf.get(name) ?? [name];
  const outside = document.links.flatMap((link) => ends(link.source).flatMap((source) => ends(link.target).map((target) => ({ ...link, source, target }))));
  /** @type {Link[]} */
  const within = taken.flatMap(({ members = [], inside = document.default }) =>
    members.flatMap((source, at) => members.slice(at + 1).map((target) => ({ source, target, one_way: false, ...inside }))),
  );
  return {
    ...document,
    devices: document.devices.flatMap((device) => (membersOf.has(device.name) ? apart(device) : [device])),
    links: [...outside, ...within],
  };
}

/**
 * The document without these devices, and without these devices of hosts: what is left of such a host differs from
 * others, and is drawn device by device.
 * @type {(document: Document, devices: string[], parts: Iterable<string>) => Document}
 */
export function withoutDevices(document, devices, parts) {
  const gone = new Set(parts);
  const broken = document.devices.filter(({ members }) => members?.some((name) => gone.has(name))).map(({ name }) => name);
  return removeDevices(takenApart(document, broken), [...gone, ...devices.filter((name) => !broken.includes(name))]);
}
