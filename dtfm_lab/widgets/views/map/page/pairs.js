// The pipes between regions: which numbers a pair of regions has, and what the plan sends over it.
import { endsOf } from "../../editor/page/lines.js";
import { trafficOf } from "shared/tasks.js";
import { there } from "shared/there.js";
/** @import { Between, Conditions, Document, Filled, Highlight, Link, Task, Tasks } from "shared/types.d.ts" */
/** @import { Pair, Pairs, Uses } from "../types.d.ts" */

/** @typedef {"uplink_gbps" | "downlink_gbps"} NetworkCard */

const SEPARATOR = "\u0000";

/**
 * One name for a pair, whichever of its regions comes first.
 * @type {(a: string, b: string) => string}
 */
export const pairKey = (a, b) => (a < b ? a + SEPARATOR + b : b + SEPARATOR + a);
/** @type {(a: string, b: string) => string} */
const wayKey = (a, b) => a + SEPARATOR + b;

/**
 * Pairs {key, a, b, there, back, kind: "line" | "filled" | "default", distance_km, gbps, ms, cards} between these regions, by
 * key: `cards` is what the devices' network cards let through, where that is less than the link's `gbps`.
 * @type {(document: Document, filled: Filled[], names: string[]) => Pairs}
 */
export function pairsOf(document, filled, names) {
  /** @type {Map<string, Between>} */
  const said = new Map();
  /** @type {(line: Between) => boolean} */
  const oneWay = (line) => !line.regions;
  for (const line of [...document.between].sort((one, other) => Number(oneWay(one)) - Number(oneWay(other)))) {
    // one way overrules both
    const [a, b] = endsOf(line);
    said.set(wayKey(a, b), line);
    if (!oneWay(line)) said.set(wayKey(b, a), line);
  }
  const single = singleLinks(document);
  const cards = cardsOf(document);
  const rule = new Map(filled.map((line) => [pairKey(...line.regions), line]));
  /** @type {Pairs} */
  const pairs = new Map();
  for (let one = 0; one < names.length; one++)
    for (let two = one + 1; two < names.length; two++) {
      const [a, b, key] = [names[one], names[two], pairKey(names[one], names[two])];
      const guess = rule.get(key);
      const [there, back] = [wayKey(a, b), wayKey(b, a)].map((way) => single.get(way) ?? said.get(way) ?? guess ?? document.default);
      const kind = said.has(wayKey(a, b)) || said.has(wayKey(b, a)) || single.has(wayKey(a, b)) ? "line" : guess ? "filled" : "default";
      const slower = back.bandwidth_gbps < there.bandwidth_gbps ? back : there;
      const through = single.has(wayKey(a, b))
        ? Infinity
        : Math.min(cards(a, "uplink_gbps"), cards(b, "downlink_gbps"), cards(b, "uplink_gbps"), cards(a, "downlink_gbps"));
      pairs.set(key, {
        key,
        a,
        b,
        nics: through < slower.bandwidth_gbps ? through : null,
        there,
        back,
        kind,
        distance_km: guess?.distance_km,
        gbps: slower.bandwidth_gbps,
        ms: Math.max(there.latency_ms, back.latency_ms),
      });
    }
  return pairs;
}

/**
 * The middle of what a region's network cards let through; Infinity where most have no limit.
 * @type {(document: Document) => (region: string, card: NetworkCard) => number}
 */
function cardsOf(document) {
  /** @type {Map<string, number[]>} */
  const found = new Map();
  for (const device of document.devices)
    for (const card of /** @type {NetworkCard[]} */ (["uplink_gbps", "downlink_gbps"])) {
      const key = wayKey(device.region, card);
      if (!found.has(key)) found.set(key, []);
      there(found.get(key)).push(device[card] ?? Infinity);
    }
  for (const values of found.values()) values.sort((x, y) => x - y);
  return (region, card) => {
    const values = found.get(wayKey(region, card)) ?? [];
    return values[values.length >> 1] ?? Infinity;
  };
}

/**
 * The middle of the single links' numbers, for ways on which at least half of the devices' links have their own.
 * @type {(document: Document) => Map<string, Conditions>}
 */
function singleLinks(document) {
  if (!document.links.length) return new Map();
  const regionOf = new Map(document.devices.map(({ name, region }) => [name, region]));
  const count = new Map();
  for (const region of regionOf.values()) count.set(region, (count.get(region) ?? 0) + 1);
  /** @type {Map<string, { a: string, b: string, links: Link[] }>} */
  const found = new Map();
  /** @type {(source: string, target: string, link: Link) => void} */
  const note = (source, target, link) => {
    const [a, b] = [regionOf.get(source) ?? "", regionOf.get(target) ?? ""];
    if (a === b) return;
    const way = wayKey(a, b);
    if (!found.has(way)) found.set(way, { a, b, links: [] });
    there(found.get(way)).links.push(link);
  };
  for (const link of document.links) {
    note(link.source, link.target, link);
    if (!link.one_way) note(link.target, link.source, link);
  }
  /** @type {(links: Link[], what: "latency_ms" | "bandwidth_gbps") => number} */
  const middle = (links, what) => links.map((link) => link[what]).sort((x, y) => x - y)[links.length >> 1];
  return new Map(
    [...found]
      .filter(([, { a, b, links }]) => 2 * links.length >= count.get(a) * count.get(b))
      .map(([way, { links }]) => [way, { latency_ms: middle(links, "latency_ms"), bandwidth_gbps: middle(links, "bandwidth_gbps") }]),
  );
}

/**
 * {device: [stage, replica]} of a highlight, by the order of its stages' devices where it does not say the replica.
 * @type {(highlight: Highlight) => Tasks}
 */
export function tasksOf({ tasks, stages }) {
  if (tasks && Object.keys(tasks).length) return tasks;
  const next = new Map();
  return Object.fromEntries(
    Object.entries(stages ?? {}).map(([name, stage]) => {
      const replica = next.get(stage) ?? 0;
      next.set(stage, replica + 1);
      return [name, [stage, replica]];
    }),
  );
}

/**
 * By pair of regions: {hops: [[from, to] devices of consecutive stages], averages: [[one, other] devices of one stage]}.
 * @type {(places: [string, Task][], regionOf: (name: string) => string | undefined) => Uses}
 */
export function usesOf(places, regionOf) {
  /** @type {Uses} */
  const uses = new Map();
  for (const { ends, use } of trafficOf(places)) {
    const [a, b] = ends.map(regionOf);
    if (a === undefined || b === undefined || a === b) continue;
    const key = pairKey(a, b);
    if (!uses.has(key)) uses.set(key, { hops: [], averages: [] });
    there(uses.get(key))[use === "hop" ? "hops" : "averages"].push(ends);
  }
  return uses;
}

const MOST_FAINT = 45;
const FASTEST = 2; // unused pairs of each region that are drawn where there are more

/**
 * The pairs that are drawn: all, or those in use or asked for and the fastest few of each region.
 * @type {(pairs: Pairs, uses: Uses, wanted: Set<string>) => Pair[]}
 */
export function worthDrawing(pairs, uses, wanted) {
  const all = [...pairs.values()];
  if (all.length <= MOST_FAINT) return all;
  const keep = new Set(all.filter(({ key }) => uses.get(key)?.hops.length || wanted.has(key)));
  const taken = new Map();
  for (const pair of all.filter((one) => !keep.has(one)).sort((one, other) => other.gbps - one.gbps)) {
    const [a, b] = [taken.get(pair.a) ?? 0, taken.get(pair.b) ?? 0];
    if (a >= FASTEST && b >= FASTEST) continue;
    keep.add(pair);
    taken.set(pair.a, a + 1).set(pair.b, b + 1);
  }
  return all.filter((pair) => keep.has(pair));
}
