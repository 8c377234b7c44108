// What the graph holds for a document, as cytoscape element descriptions.
// Ids carry the kind of thing, so that a device and a region may share a name.
import { endsOf, isOneWay } from "./lines.js";

export const MANY_LINKS = 150; // more than anybody can follow: only those of what is chosen or pointed at are drawn
const MOST_SHOWN = 600; // of these

export const deviceId = (name) => `device:${name}`;
export const regionId = (name) => `region:${name}`;
export const lineId = (kind, ends, oneWay) => `${kind}:${JSON.stringify(oneWay ? ends : [...ends].sort())}${oneWay ? ">" : ""}`;

const EMPTY_REGION_STEP = 120;

/** `restingPlaces` remembers where a region's box was before its last device left. */
export function nodesOf(document, restingPlaces) {
  const devices = unique(document.devices, (device) => device.name);
  const regions = unique(document.regions, (region) => region.name);
  const regionNames = new Set(regions.map((region) => region.name));
  const inhabitants = new Map();
  const reach = new Map(); // of each region from left to right
  for (const { region, x } of devices) {
    inhabitants.set(region, (inhabitants.get(region) ?? 0) + 1);
    const [left, right] = reach.get(region) ?? [x, x];
    reach.set(region, [Math.min(left, x), Math.max(right, x)]);
  }
  const widthOf = ([left, right]) => right - left;
  let empties = 0;
  const boxes = regions.map(({ name, ...inside }) => ({
    group: "nodes",
    data: { id: regionId(name), kind: "region", name, width: widthOf(reach.get(name) ?? [0, 0]), label: inhabitants.get(name) > 1 ? `${name} · ${conditions(inside)}` : name },
    classes: inhabitants.has(name) ? "region" : "region empty",
    ...(inhabitants.has(name) ? {} : { position: restingPlaces.get(name) ?? { x: EMPTY_REGION_STEP * empties++, y: -EMPTY_REGION_STEP } }),
  }));
  const dots = devices.map(({ name, region, gpu, x, y }) => ({
    group: "nodes",
    data: { id: deviceId(name), kind: "device", name, label: name, gpu, parent: regionNames.has(region) ? regionId(region) : undefined },
    classes: "device",
    position: { x, y },
  }));
  return [...boxes, ...dots];
}

/** Pairs of regions, drawn and filled, and links: all, or of many those that touch a device of `focus`. */
export function edgesOf(document, filled, focus) {
  const devices = new Set(document.devices.map((device) => device.name));
  const regions = new Set(document.regions.map((region) => region.name));
  const few = document.links.length <= MANY_LINKS;
  const touched = few ? document.links : document.links.filter(({ source, target }) => focus.has(source) || focus.has(target)).slice(0, MOST_SHOWN);
  const slow = slowBelow(few ? [...document.links, ...document.between] : document.between);
  const edges = (kind, lines, there, idOf, look = "") => lines
    .filter((line) => { const [a, b] = endsOf(line); return a !== b && there.has(a) && there.has(b); })
    .map((line) => {
      const ends = endsOf(line);
      const oneWay = isOneWay(line);
      return {
        group: "edges",
        data: {
          id: lineId(kind, ends, oneWay), kind, ends, oneWay, source: idOf(ends[0]), target: idOf(ends[1]),
          label: (look ? "≈ " : "") + conditions(line), gbps: line.bandwidth_gbps,
        },
        classes: [kind, oneWay && "one-way", line.bandwidth_gbps < slow && "slow", look].filter(Boolean).join(" "),
      };
    });
  return unique([
    ...edges("pair", document.between, regions, regionId), ...edges("pair", filled, regions, regionId, "filled"), ...edges("link", touched, devices, deviceId),
  ], (element) => element.data.id);
}

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
