// What the graph holds for a document, as cytoscape element descriptions.
// Ids carry the kind of thing, so that a device and a region may share a name.
import { samePair } from "./document.js";

export const deviceId = (name) => `device:${name}`;
export const regionId = (name) => `region:${name}`;
export const linkId = (link) => `link:${JSON.stringify([link.source, link.target])}`;
export const pairId = (regions) => `pair:${JSON.stringify([...regions].sort())}`;

const EMPTY_REGION_STEP = 120;

/** `restingPlaces` remembers where a region's box was before its last device left. */
export function elementsOf(document, restingPlaces) {
  const devices = unique(document.devices, (device) => device.name);
  const regions = unique(document.regions, (region) => region.name);
  const deviceNames = new Set(devices.map((device) => device.name));
  const regionNames = new Set(regions.map((region) => region.name));
  const inhabited = new Set(devices.map((device) => device.region));
  const hasInside = (name) => devices.filter((device) => device.region === name).length > 1;
  const slow = slowBelow([...document.links, ...document.between]);
  let empties = 0;

  const boxes = regions.map((region) => region.name).map((name, at) => ({
    group: "nodes",
    data: { id: regionId(name), kind: "region", name, label: hasInside(name) ? `${name} · ${conditions(regions[at])}` : name },
    classes: inhabited.has(name) ? "region" : "region empty",
    ...(inhabited.has(name) ? {} : { position: restingPlaces.get(name) ?? { x: EMPTY_REGION_STEP * empties++, y: -EMPTY_REGION_STEP } }),
  }));
  const dots = devices.map(({ name, region, gpu, x, y }) => ({
    group: "nodes",
    data: { id: deviceId(name), kind: "device", name, label: name, gpu, parent: regionNames.has(region) ? regionId(region) : undefined },
    classes: "device",
    position: { x, y },
  }));
  const links = unique(document.links, linkId)
    .filter(({ source, target }) => deviceNames.has(source) && deviceNames.has(target) && source !== target)
    .map((link) => ({
      group: "edges",
      data: { id: linkId(link), kind: "link", ...ends(link), source: deviceId(link.source), target: deviceId(link.target), label: conditions(link), gbps: link.bandwidth_gbps },
      classes: classes("link", link.one_way && "one-way", link.bandwidth_gbps < slow && "slow"),
    }));
  const pairs = document.between
    .filter(({ regions: [a, b] }, at, all) => regionNames.has(a) && regionNames.has(b) && a !== b && all.findIndex((pair) => samePair(pair.regions, [a, b])) === at)
    .map((pair) => ({
      group: "edges",
      data: { id: pairId(pair.regions), kind: "pair", regions: pair.regions, source: regionId(pair.regions[0]), target: regionId(pair.regions[1]), label: conditions(pair), gbps: pair.bandwidth_gbps },
      classes: classes("pair", pair.bandwidth_gbps < slow && "slow"),
    }));
  return [...boxes, ...dots, ...pairs, ...links];
}

const ends = ({ source, target }) => ({ from: source, to: target });

const classes = (...names) => names.filter(Boolean).join(" ");

/** "50 ms · 0.1 Gbit/s" */
export function conditions({ latency_ms, bandwidth_gbps }) {
  const number = (value) => Number(value).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  return `${number(latency_ms)} ms · ${number(bandwidth_gbps)} Gbit/s`;
}

/** A tenth of the median of what is drawn: below, a line is drawn as slow. */
function slowBelow(lines) {
  const widths = lines.map((line) => line.bandwidth_gbps).sort((one, other) => one - other);
  return widths.length ? widths[Math.floor(widths.length / 2)] / 10 : 0;
}

function unique(things, key) {
  const seen = new Set();
  return things.filter((thing) => !seen.has(key(thing)) && seen.add(key(thing)));
}
