// The topology document as a value: every edit is a function that returns a new one.
// Devices and regions are known by their names, so renaming one rewrites what refers to it.
import { endsOf } from "./lines.js";
/** @import { Conditions, Device, Document, Region } from "shared/types.d.ts" */

/**
 * The document with every part there, so that nothing below needs to ask.
 * @type {(document: object) => Document}
 */
export function complete(document) {
  return {
    name: "untitled",
    devices: [],
    regions: [],
    between: [],
    links: [],
    ...document,
    default: { latency_ms: 50, bandwidth_gbps: 1, .../** @type {Partial<Document>} */ (document)?.default },
  };
}

/** @type {<T extends { name: string }>(things: T[], name: string) => T | undefined} */
export const named = (things, name) => things.find((thing) => thing.name === name);

/**
 * "device-1", "device-2", ...: the first free name.
 * @type {(things: { name: string }[], stem: string, first?: number, gap?: string) => string}
 */
export function freeName(things, stem, first = 1, gap = "-") {
  const taken = new Set(things.map((thing) => thing.name));
  let number = first;
  while (taken.has(`${stem}${gap}${number}`)) number++;
  return `${stem}${gap}${number}`;
}

/** @type {(document: Document, device: { region: string, gpu: string, x: number, y: number }) => [Document, string]} */
export function addDevice(document, { region, gpu, x, y }) {
  const name = freeName(document.devices, "device");
  return [{ ...document, devices: [...document.devices, { name, region, gpu, x, y }] }, name];
}

/**
 * `change` is {key: value}; undefined takes a key away.
 * @type {(document: Document, names: string[], change: Partial<Device>) => Document}
 */
export function changeDevices(document, names, change) {
  const chosen = new Set(names);
  /** @type {(device: Device) => Device} */
  const changed = (device) => /** @type {Device} */ (Object.fromEntries(Object.entries({ ...device, ...change }).filter(([, value]) => value !== undefined)));
  return { ...document, devices: document.devices.map((device) => (chosen.has(device.name) ? changed(device) : device)) };
}

/**
 * `places` maps a name to its {x, y}.
 * @type {(document: Document, places: Map<string, { x: number, y: number }>) => Document}
 */
export function moveDevices(document, places) {
  return { ...document, devices: document.devices.map((device) => (places.has(device.name) ? { ...device, ...places.get(device.name) } : device)) };
}

/**
 * `joined` maps a device's name to the region that it joins.
 * @type {(document: Document, joined: Map<string, string>) => Document}
 */
export function joinRegions(document, joined) {
  if (!joined.size) return document;
  return { ...document, devices: document.devices.map((device) => ({ ...device, region: joined.get(device.name) ?? device.region })) };
}

/** @type {(document: Document, from: string, to: string) => Document} */
export function renameDevice(document, from, to) {
  /** @type {(one: string) => string} */
  const name = (one) => (one === from ? to : one);
  return {
    ...document,
    devices: document.devices.map((device) => (device.name === from ? { ...device, name: to } : device)),
    links: document.links.map((link) => (endsOf(link).includes(from) ? { ...link, source: name(link.source), target: name(link.target) } : link)),
  };
}

/** @type {(document: Document, from: string, to: string) => Document} */
export function renameRegion(document, from, to) {
  /** @type {(one: string) => string} */
  const name = (one) => (one === from ? to : one);
  return {
    ...document,
    regions: document.regions.map((region) => ({ ...region, name: name(region.name) })),
    devices: document.devices.map((device) => (device.region === from ? { ...device, region: to } : device)),
    between: document.between.map((pair) =>
      pair.regions ? { ...pair, regions: pair.regions.map(name) } : { ...pair, from: name(pair.from ?? ""), to: name(pair.to ?? "") },
    ),
  };
}

/** @type {(document: Document, names: string[], change: Partial<Conditions>) => Document} */
export function changeRegions(document, names, change) {
  return { ...document, regions: document.regions.map((region) => (names.includes(region.name) ? { ...region, ...change } : region)) };
}

/** Inside a region that is drawn by hand: one site's network, not the wide area that joins it to others. */
export const ONE_SITE = { latency_ms: 0.5, bandwidth_gbps: 10 };

/**
 * Puts devices in a new region with a site's network inside. Regions that become empty are removed.
 * @type {(document: Document, names: string[]) => [Document, string]}
 */
export function groupDevices(document, names) {
  const name = freeName(document.regions, "region");
  const devices = document.devices.map((device) => (names.includes(device.name) ? { ...device, region: name } : device));
  const emptied = document.regions
    .map((region) => region.name)
    .filter((region) => document.devices.some((one) => one.region === region) && !devices.some((one) => one.region === region));
  const grown = { ...document, devices, regions: [...document.regions, { name, ...ONE_SITE }] };
  return [removeRegions(grown, emptied), name];
}

/**
 * Takes the boxes of these regions away and leaves their devices where they are.
 * @type {(document: Document, names: string[]) => Document}
 */
export function removeRegions(document, names) {
  const gone = new Set(names);
  return {
    ...document,
    regions: document.regions.filter((region) => !gone.has(region.name)),
    devices: document.devices.map((device) => (gone.has(device.region) ? { ...device, region: "" } : device)),
    between: document.between.filter((pair) => !endsOf(pair).some((region) => gone.has(region))),
  };
}

/** @type {(document: Document, names: string[]) => Document} */
export function removeDevices(document, names) {
  const gone = new Set(names);
  return {
    ...document,
    devices: document.devices.filter((device) => !gone.has(device.name)),
    links: document.links.filter((link) => !gone.has(link.source) && !gone.has(link.target)),
  };
}

/**
 * The names of devices whose own name, GPU or region holds the text, whatever its case; of hosts also by their devices.
 * @type {(document: Document, text: string) => string[]}
 */
export function matches(document, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  return document.devices
    .filter((device) => [device.name, device.gpu, device.region, ...(device.members ?? [])].some((word) => String(word).toLowerCase().includes(wanted)))
    .map((device) => device.name);
}

/**
 * Deep equality of JSON values, whatever the order of their keys.
 * @type {(one: any, other: any) => boolean}
 */
export function same(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  const [keys, otherKeys] = [Object.keys(one), Object.keys(other)];
  return keys.length === otherKeys.length && keys.every((key) => same(one[key], other[key]));
}
