// Duplicates: new names and places, the same numbers.
import { freeName } from "./document.js";
import { endsOf } from "./lines.js";
/** @import { Document, Point } from "shared/types.d.ts" */
/** @import { Ends } from "../types.d.ts" */

const ASIDE = 36; // how far copies of single devices stand from what they copy
const GAP = 70;

/**
 * Copies with their links, to others and among each other. Returns the document and the copies' names.
 * @type {(document: Document, names: string[], shift?: Point, regionOf?: (region: string) => string) => [Document, string[]]}
 */
export function duplicateDevices(document, names, shift = { x: ASIDE, y: ASIDE }, regionOf = (/** @type {string} */ region) => region) {
  const copyOf = new Map();
  const devices = [...document.devices];
  for (const device of document.devices.filter((one) => names.includes(one.name))) {
    const { measured_as, ...kept } = device; // the copy has not been timed
    const name = nextName(devices, device.name);
    copyOf.set(device.name, name);
    const members = device.members?.map((_, i) => `${name}-${i}`); // of a host that stands for all its devices
    devices.push({ ...kept, ...(members && { members }), name, region: regionOf(device.region), x: device.x + shift.x, y: device.y + shift.y });
  }
  const links = document.links.flatMap((link) => copiesOf(endsOf(link), copyOf).map(([source, target]) => ({ ...link, source, target })));
  return [{ ...document, devices, links: [...document.links, ...links] }, [...copyOf.values()]];
}

/**
 * Regions with their devices, what is inside them, and their pairs with others.
 * @type {(document: Document, names: string[]) => [Document, string[]]}
 */
export function duplicateRegions(document, names) {
  const copyOf = new Map();
  const regions = [...document.regions];
  for (const region of document.regions.filter((one) => names.includes(one.name))) {
    const copy = nextName(regions, region.name, " ");
    copyOf.set(region.name, copy);
    regions.push({ ...region, name: copy });
  }
  const between = document.between.flatMap((pair) =>
    copiesOf(endsOf(pair), copyOf).map(([a, b]) => (pair.regions ? { ...pair, regions: [a, b] } : { ...pair, from: a, to: b })),
  );
  const members = document.devices.filter((device) => copyOf.has(device.region));
  const [grown] = duplicateDevices(
    document,
    members.map((device) => device.name),
    freeShift(document, members),
    (region) => copyOf.get(region),
  );
  return [{ ...grown, regions, between: [...document.between, ...between] }, [...copyOf.values()]];
}

/**
 * The ends of a line's copies: from copies to other things, and from copy to copy.
 * @type {(ends: Ends, copyOf: Map<string, string>) => Ends[]}
 */
function copiesOf([a, b], copyOf) {
  const [copyA, copyB] = [copyOf.get(a), copyOf.get(b)];
  if (copyA !== undefined) return [[copyA, copyB ?? b]];
  return copyB !== undefined ? [[a, copyB]] : [];
}

/**
 * "ada-2" after "ada", "rack-8" after "rack-7", "Oregon 2" after "Oregon".
 * @type {(things: { name: string }[], name: string, gap?: string) => string}
 */
function nextName(things, name, gap = "-") {
  const [, stem, ownGap, number] = /^(.*?)([-_ ]?)(\d+)$/.exec(name) ?? [name, name, gap, "1"];
  return freeName(things, stem || name, Number(number) + 1, stem ? ownGap : gap);
}

/**
 * The nearest place to the right or below where the copies cover no device.
 * @type {(document: Document, members: Point[]) => Point}
 */
function freeShift(document, members) {
  if (!members.length) return { x: 0, y: 0 };
  const [xs, ys] = [members.map((one) => one.x), members.map((one) => one.y)];
  const box = { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
  const step = { x: box.right - box.left + 2 * GAP, y: box.bottom - box.top + 2 * GAP };
  /** @type {(shift: Point) => boolean} */
  const covers = ({ x, y }) =>
    document.devices.some((one) => one.x > box.left + x - GAP && one.x < box.right + x + GAP && one.y > box.top + y - GAP && one.y < box.bottom + y + GAP);
  for (let ring = 1; ring < 50; ring++) {
    const tries = [
      [ring, 0],
      [0, ring],
      [-ring, 0],
      [0, -ring],
      [ring, ring],
    ].map(([i, j]) => ({ x: i * step.x, y: j * step.y }));
    const free = tries.find((shift) => !covers(shift));
    if (free) return free;
  }
  return { x: ASIDE, y: ASIDE };
}
