// What gestures on the map do to the document: regions are cities, devices belong to one.
import { freeName, named, ONE_SITE, renameRegion } from "../../editor/page/document.js";
/** @import { Between, Conditions, Document, Link, Region } from "shared/types.d.ts" */
/** @import { Pair } from "../types.d.ts" */

const PITCH = 90; // between devices on the canvas, where these must stand somewhere too

/**
 * A new device in a city's region, which is made if it is not there; [document, name].
 * @type {(document: Document, region: string, gpu: string) => [Document, string]}
 */
export function addDevice(document, region, gpu) {
  const name = freeName(document.devices, "device");
  const grown = withRegion(document, region);
  const [place] = besides(grown, region, 1);
  return [{ ...grown, devices: [...grown.devices, { name, region, gpu, ...place }] }, name];
}

/**
 * Moves devices to a city's region. Regions that become empty are removed with their lines.
 * @type {(document: Document, names: string[], region: string) => Document}
 */
export function moveDevices(document, names, region) {
  const moving = new Set(document.devices.filter((device) => names.includes(device.name) && device.region !== region).map(({ name }) => name));
  if (!moving.size) return document;
  const left = new Set(document.devices.filter(({ name }) => moving.has(name)).map((device) => device.region));
  const grown = withRegion(document, region, [...left]);
  const places = besides(grown, region, moving.size);
  let at = 0;
  const devices = grown.devices.map((device) => (moving.has(device.name) ? { ...device, region, ...places[at++] } : device));
  const gone = new Set([...left].filter((name) => name && !devices.some((device) => device.region === name)));
  return {
    ...grown,
    devices,
    regions: grown.regions.filter(({ name }) => !gone.has(name)),
    between: grown.between.filter((line) => !(line.regions ?? [line.from ?? "", line.to ?? ""]).some((name) => gone.has(name))),
  };
}

/**
 * A whole region to a city. One that had no place gets it by name, and keeps its lines; else its devices move.
 * @type {(document: Document, from: string, to: string, hadPlace: boolean) => Document}
 */
export function moveRegion(document, from, to, hadPlace) {
  if (from === to) return document;
  if (from && !hadPlace && !named(document.regions, to)) return renameRegion(document, from, to);
  return moveDevices(
    document,
    document.devices.filter(({ region }) => region === from).map(({ name }) => name),
    to,
  );
}

/**
 * With a region of this name: inside it is what it was where its first devices come from, what most regions say, or one
 * site's network. The default is of devices far apart, and a room's network is no slower than an ocean's.
 * @type {(document: Document, name: string, sources?: string[]) => Document}
 */
function withRegion(document, name, sources = []) {
  if (named(document.regions, name)) return document;
  const source = sources.map((from) => named(document.regions, from)).find(Boolean);
  const { latency_ms, bandwidth_gbps } = source ?? commonest(document.regions) ?? ONE_SITE;
  return { ...document, regions: [...document.regions, { name, latency_ms, bandwidth_gbps }] };
}

/** @type {(regions: Region[]) => Conditions | undefined} */
function commonest(regions) {
  const count = new Map();
  for (const { latency_ms, bandwidth_gbps } of regions) {
    const said = JSON.stringify({ latency_ms, bandwidth_gbps });
    count.set(said, (count.get(said) ?? 0) + 1);
  }
  const [most] = [...count].sort((a, b) => b[1] - a[1]);
  return most && JSON.parse(most[0]);
}

/**
 * Free places on the canvas under a region's devices, or to the right of everything.
 * @type {(document: Document, region: string, n: number) => { x: number, y: number }[]}
 */
function besides(document, region, n) {
  const members = document.devices.filter((device) => device.region === region);
  const columns = Math.max(1, Math.ceil(Math.sqrt(members.length + n)));
  const x = members.length ? Math.min(...members.map((one) => one.x)) : Math.max(0, ...document.devices.map((one) => one.x)) + 2 * PITCH;
  const y = members.length ? Math.max(...members.map((one) => one.y)) + PITCH : Math.min(0, ...document.devices.map((one) => one.y));
  return Array.from({ length: n }, (_, at) => ({ x: x + (at % columns) * PITCH, y: y + Math.floor(at / columns) * PITCH }));
}

/**
 * New numbers of the links between two regions, both ways, {latency_ms, bandwidth_gbps}: of their line and of single links.
 * @type {(document: Document, pair: Pair, conditions: Conditions, before: Conditions) => Document}
 */
export function changePair(document, { a, b, there, back }, conditions, before) {
  /** @type {Partial<Conditions>} */
  const changed = Object.fromEntries(Object.entries(conditions).filter(([what, value]) => value !== before[/** @type {keyof Conditions} */ (what)]));
  const ways = /** @type {[string, string, Conditions][]} */ ([
    [a, b, there],
    [b, a, back],
  ]).map(([from, to, { latency_ms, bandwidth_gbps }]) => ({ from, to, latency_ms, bandwidth_gbps, ...changed }));
  const alike = ways[0].latency_ms === ways[1].latency_ms && ways[0].bandwidth_gbps === ways[1].bandwidth_gbps;
  const { latency_ms, bandwidth_gbps } = ways[0];
  /** @type {Between[]} */
  const lines = alike ? [{ regions: [a, b], latency_ms, bandwidth_gbps }] : ways;
  /** @type {(line: Between) => boolean} */
  const joins = (line) => {
    const ends = line.regions ?? [line.from, line.to];
    return ends.includes(a) && ends.includes(b);
  };
  const regionOf = new Map(document.devices.map(({ name, region }) => [name, region]));
  /** @type {(link: Link) => boolean} */
  const theirs = ({ source, target }) => [regionOf.get(source), regionOf.get(target)].sort().join("\0") === [a, b].sort().join("\0");
  const first = document.between.findIndex(joins);
  const others = document.between.filter((line) => !joins(line));
  const at = first < 0 ? others.length : first;
  return {
    ...document,
    between: [...others.slice(0, at), ...lines, ...others.slice(at)],
    links: document.links.some(theirs) ? document.links.map((link) => (theirs(link) ? { ...link, ...changed } : link)) : document.links,
  };
}
