// What is drawn of a document: devices with the task each has, regions, and the lines worth drawing.
import { gpuShape } from "shared/gpus.js";
import { linkText } from "shared/links.js";
import { nStagesOf, placesOf, trafficOf } from "shared/tasks.js";
import { conditionsOf, endsOf, isOneWay } from "./lines.js";
/** @import { Conditions, Document, Device, Filled, Highlight, Region, Tasks } from "shared/types.d.ts" */
/** @import { Traffic } from "shared/tasks.js" */
/** @import { Ends, Line, LineKind, Scene, SceneLine, Use } from "../types.d.ts" */

export const MANY_LINKS = 150; // too many to follow: only those of chosen or pointed-at things are drawn
const MOST_SHOWN = 600; // of these
const MOST_OF_PLAN = 44; // messages' ways, above which a plan is drawn along its regions' pipes
const MOST_REGIONS = 10; // above, pairs of regions that nothing is said of are drawn where the plan uses them

/** @type {(kind: LineKind, ends: Ends, oneWay: boolean) => string} */
export const lineId = (kind, ends, oneWay) => `${kind}:${JSON.stringify(oneWay ? ends : [...ends].sort())}${oneWay ? ">" : ""}`;

/**
 * {device: [stage, replica]}: as it was sent, or of stages alone the devices of each in the document's order.
 * @type {(highlight: Highlight, document: Document) => Tasks}
 */
export function tasksOf({ tasks, stages }, document) {
  if (tasks) return tasks;
  /** @type {Tasks} */
  const found = {};
  const counts = new Map();
  for (const { name } of document.devices) {
    const stage = stages?.[name];
    if (stage === undefined || !Number.isInteger(stage)) continue;
    const replica = (counts.get(stage) ?? -1) + 1;
    counts.set(stage, replica);
    found[name] = [stage, replica];
  }
  return found;
}

/**
 * {devices, boxes, lines, nStages, tasks, shortNames, hasDefault} of a document. A line is {id, kind: "link" | "pair", ends, oneWay,
 * own, about, latency_ms, bandwidth_gbps, uses, across, suspect}: `own` says that the document holds it, `about` that a rule
 * made it, `uses` what the plan sends along it, `across` that it joins two regions. `focus` names the devices whose
 * links are drawn where there are many.
 * @type {(document: Document, filled: Filled[], highlight: Highlight, focus: Set<string>) => Scene}
 */
export function sceneOf(document, filled, highlight, focus) {
  const regions = unique(document.regions, (region) => region.name);
  const named = new Set(regions.map((region) => region.name));
  const devices = unique(document.devices, (device) => device.name);
  const regionOf = new Map(devices.map(({ name, region }) => [name, named.has(region) ? region : ""]));
  const tasks = tasksOf(highlight, document);
  const hosts = new Map(devices.flatMap(({ name, members = [] }) => (members.length > 1 ? [/** @type {[string, string[]]} */ ([name, members])] : [])));
  const { cells = {} } = highlight;
  const uses = placesOf(tasks, cells);
  const nStages = nStagesOf(uses);
  const traffic = nStages > 0 ? trafficOf(uses).filter(({ ends }) => ends.every((name) => regionOf.has(name))) : [];
  const lines = linksOf(document, regionOf, traffic, filled, focus);
  const drawn = new Set(lines.filter((line) => line.uses.size && line.across).map((line) => pairKey(line.ends.map((name) => regionOf.get(name) ?? ""))));
  lines.unshift(...pairsOf(document, filled, regions, regionOf, traffic, drawn));
  const suspects = new Set(
    (highlight.suspects ?? []).flatMap((ends) => [`link${pairKey(ends)}`, `pair${pairKey(ends.map((name) => regionOf.get(name) ?? ""))}`]),
  );
  for (const line of lines) line.suspect = suspects.has(`${line.kind}${pairKey(line.ends)}`);
  const binds = highlight.binds ?? [];
  const bound = new Set(binds.length === 2 ? boundLines(binds, lines, regionOf) : []);
  for (const line of lines) line.binds = bound.has(line);
  const limits = new Set(bound.size ? [] : binds); // of a link that is not drawn, both ends
  const slow = new Set((highlight.suspects ?? []).flatMap((names) => (names.length === 1 ? names : [])));
  const absent = new Set(highlight.absent);
  const inhabitants = new Map();
  for (const region of regionOf.values()) inhabitants.set(region, (inhabitants.get(region) ?? 0) + 1);
  const said = new Set([...document.between.map(endsOf), ...filled.map((one) => one.regions)].map(pairKey));
  const populated = [...inhabitants.keys()].filter(Boolean);
  return {
    nStages,
    tasks: {
      ...Object.fromEntries(Object.entries(tasks).filter(([name]) => !hosts.has(name))),
      ...Object.fromEntries([...hosts].flatMap(([host, members]) => members.map((name, at) => [name, cells[host]?.[at]]).filter(([, task]) => task))),
    },
    hostOf: new Map([...hosts].flatMap(([host, members]) => members.map((name) => [name, host]))),
    bound: new Set(highlight.parts),
    slow,
    lines,
    absent,
    shortNames: shortNames(devices, regionOf),
    devices: devices.map(({ name, region, gpu, x, y, members }) => ({
      name,
      gpu,
      shape: hosts.has(name) ? "host" : gpuShape(gpu),
      members: hosts.get(name) ?? [],
      cells: members && hosts.has(name) ? members.map((_, at) => cells[name]?.[at] ?? null) : [],
      region: named.has(region) ? region : "",
      x,
      y,
      task: tasks[name] ?? null,
      suspect: slow.has(name),
      binds: limits.has(name),
    })),
    boxes: regions.map(({ name, latency_ms, bandwidth_gbps }) => {
      const [gbps, ms] = linkText(bandwidth_gbps, latency_ms);
      return { name, count: inhabitants.get(name) ?? 0, labels: inhabitants.get(name) > 1 ? [`${name} · ${ms} · ${gbps}`, `${name} · ${gbps}`, name] : [name] };
    }),
    hasDefault:
      devices.length > 1 && ((inhabitants.get("") ?? 0) > 0 || populated.some((a, i) => populated.slice(i + 1).some((b) => !said.has(pairKey([a, b]))))),
  };
}

/**
 * The lines that show a link: between two regions, their pipe or else all lines between their devices.
 * @type {(ends: string[], lines: SceneLine[], regionOf: Map<string, string>) => SceneLine[]}
 */
function boundLines(ends, lines, regionOf) {
  /** @type {(names: string[]) => string} */
  const between = (names) => pairKey(names.map((name) => regionOf.get(name) ?? ""));
  const [a, b] = ends.map((name) => regionOf.get(name) ?? "");
  const links = lines.filter(({ kind }) => kind === "link");
  if (a === b || !a || !b) return links.filter((line) => pairKey(line.ends) === pairKey(ends));
  const pipes = lines.filter((line) => line.kind === "pair" && pairKey(line.ends) === pairKey([a, b]));
  return pipes.length ? pipes : links.filter((line) => between(line.ends) === pairKey([a, b]));
}

/**
 * {name: what distinguishes it within its region}: "3" for "Oregon-3" among "Oregon-1" to "Oregon-8".
 * @type {(devices: Device[], regionOf: Map<string, string>) => Map<string, string>}
 */
function shortNames(devices, regionOf) {
  /** @type {Map<string, string[]>} */
  const members = new Map();
  for (const { name } of devices) members.set(regionOf.get(name) ?? "", [...(members.get(regionOf.get(name) ?? "") ?? []), name]);
  const short = new Map();
  for (const names of members.values()) {
    if (names.length < 2) continue;
    const stem = stemOf(names);
    if (stem) for (const name of names) short.set(name, name.slice(stem));
  }
  return short;
}

/**
 * The length of what all these names begin with, up to a separator: 4 for "gpu-16" and "gpu-17".
 * @type {(names: string[]) => number}
 */
export function stemOf(names) {
  let common = 0;
  while (names.every((name) => name.length > common + 1 && name[common] === names[0][common])) common++;
  return /^.*[-_ ./]/.exec(names[0].slice(0, common))?.[0].length ?? 0;
}

/** @type {(ends: string[]) => string} */
export const pairKey = (ends) => JSON.stringify([...ends].sort());

/**
 * Links with their own numbers, and the paths of a plan's messages if these are few.
 * @type {(document: Document, regionOf: Map<string, string>, traffic: Traffic[], filled: Filled[], focus: Set<string>) => SceneLine[]}
 */
function linksOf(document, regionOf, traffic, filled, focus) {
  const few = document.links.length <= MANY_LINKS;
  const wanted = few ? document.links : document.links.filter(({ source, target }) => focus.has(source) || focus.has(target)).slice(0, MOST_SHOWN);
  const uses = new Map();
  for (const { ends, use } of traffic) {
    const key = pairKey(ends);
    uses.set(key, (uses.get(key) ?? new Set()).add(use));
  }
  /** @type {(ends: string[]) => boolean} */
  const across = ([a, b]) => regionOf.get(a) !== regionOf.get(b) || !regionOf.get(a);
  const own = wanted
    .filter((link) => link.source !== link.target && regionOf.has(link.source) && regionOf.has(link.target))
    .map((link) => lineFrom("link", link, { own: true, across: across(endsOf(link)), uses: uses.get(pairKey(endsOf(link))) }));
  if (traffic.length > MOST_OF_PLAN) return unique(own, (line) => line.id);
  const held = new Set(own.map((line) => pairKey(line.ends)));
  const ways = unique(traffic, ({ ends }) => pairKey(ends)).filter(({ ends }) => !held.has(pairKey(ends)));
  const planned = ways.map(({ ends }) =>
    lineFrom(
      "link",
      { source: ends[0], target: ends[1], ...conditionsOf(document, "link", ends, filled) },
      { own: false, across: across(ends), uses: uses.get(pairKey(ends)) },
    ),
  );
  return unique([...own, ...planned], (line) => line.id);
}

/**
 * Pipes between regions: those with numbers of their own, those that a rule has filled, and the others.
 * @type {(document: Document, filled: Filled[], regions: Region[], regionOf: Map<string, string>, traffic: Traffic[], drawn: Set<string>) => SceneLine[]}
 */
function pairsOf(document, filled, regions, regionOf, traffic, drawn) {
  const names = new Set(regions.map((region) => region.name));
  const uses = new Map();
  for (const { ends, use } of traffic) {
    const [a, b] = ends.map((name) => regionOf.get(name));
    if (!a || !b || a === b) continue;
    const key = pairKey([a, b]);
    uses.set(key, (uses.get(key) ?? new Set()).add(use));
  }
  /** @type {(ends: string[]) => boolean} */
  const there = (ends) => ends[0] !== ends[1] && ends.every((name) => names.has(name));
  /** @type {(line: Line, more: { own: boolean, about?: boolean }) => SceneLine} */
  const make = (line, more) => lineFrom("pair", line, { across: true, uses: uses.get(pairKey(endsOf(line))), ...more });
  const lines = [
    ...document.between.filter((line) => there(endsOf(line))).map((line) => make(line, { own: true })),
    ...filled.filter((line) => there(line.regions)).map((line) => make(line, { own: false, about: true })),
  ];
  const said = new Set(lines.map((line) => pairKey(line.ends)));
  const populated = [...new Set(regionOf.values())].filter(Boolean);
  populated.forEach((a, i) =>
    populated.slice(i + 1).forEach((b) => {
      const key = pairKey([a, b]);
      if (!said.has(key) && (populated.length <= MOST_REGIONS || uses.has(key))) lines.push(make({ regions: [a, b], ...document.default }, { own: false }));
    }),
  );
  return unique(lines, (line) => line.id).filter((line) => !drawn.has(pairKey(line.ends)));
}

/** @type {(kind: LineKind, line: Line, more: { own: boolean, about?: boolean, across: boolean, uses?: Set<Use> }) => SceneLine} */
function lineFrom(kind, line, { own, about = false, across, uses }) {
  const [ends, oneWay] = [endsOf(line), isOneWay(line)];
  return {
    id: lineId(kind, ends, oneWay),
    kind,
    ends,
    oneWay,
    own,
    about,
    across,
    latency_ms: line.latency_ms,
    bandwidth_gbps: line.bandwidth_gbps,
    uses: uses ?? new Set(),
  };
}

/** @type {<T>(things: T[], key: (thing: T) => string) => T[]} */
function unique(things, key) {
  const seen = new Set();
  return things.filter((thing) => !seen.has(key(thing)) && seen.add(key(thing)));
}
