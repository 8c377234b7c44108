// What a plan has devices do, by what is drawn: a device, or a host that stands for several.
/** @import { Highlight, Task, Tasks } from "./types.d.ts" */

/** @typedef {{ ends: [string, string], use: "hop" | "averaging" }} Traffic */

/**
 * [name, [stage, replica]] of all that a plan uses. The devices of a host have its name, and one entry each.
 * @type {(tasks: Tasks, cells?: Highlight["cells"]) => [string, Task][]}
 */
export function placesOf(tasks, cells = {}) {
  /** @type {[string, Task][]} */
  const alone = Object.entries(tasks).filter(([name]) => !Object.hasOwn(cells, name));
  const inHosts = Object.entries(cells).flatMap(([name, held]) => held.flatMap((task) => (task ? [/** @type {[string, Task]} */ ([name, task])] : [])));
  return [...alone, ...inHosts];
}

/** The number of stages of these places. @type {(places: [string, Task][]) => number} */
export const nStagesOf = (places) => places.reduce((most, [, [stage]]) => Math.max(most, stage + 1), 0);

/**
 * Which of what is drawn send each other something under a plan: each pair of a use once, and none with itself.
 * @type {(places: [string, Task][]) => Traffic[]}
 */
export function trafficOf(places) {
  /** @type {Map<string, string>} */
  const at = new Map();
  /** @type {Map<number, Set<string>>} */
  const stages = new Map();
  for (const [name, [stage, replica]] of places) {
    at.set(`${stage}/${replica}`, name);
    stages.set(stage, (stages.get(stage) ?? new Set()).add(name));
  }
  /** @type {Traffic[]} */
  const ways = [];
  /** @type {Map<string, Set<string>>} */
  const hops = new Map();
  for (const [name, [stage, replica]] of places) {
    const next = at.get(`${stage + 1}/${replica}`);
    if (next === undefined || next === name || hops.get(name)?.has(next)) continue;
    hops.set(name, (hops.get(name) ?? new Set()).add(next));
    ways.push({ ends: [name, next], use: "hop" });
  }
  const seen = new Set(); // where every host holds all stages, the same hosts average each
  for (const members of [...stages.values()].map((names) => [...names])) {
    const key = members.length > 1 ? JSON.stringify([...members].sort()) : "";
    if (!key || seen.has(key)) continue;
    seen.add(key);
    members.forEach((name, i) => members.slice(i + 1).forEach((other) => ways.push({ ends: [name, other], use: "averaging" })));
  }
  return ways;
}
