// What the map says in words: of what is pointed at.
import { linkText, short } from "shared/links.js";
import { there } from "shared/there.js";
/** @import { Conditions } from "shared/types.d.ts" */
/** @import { Card, Facts, Hit, Pair } from "../types.d.ts" */

/** @type {(n: number, one: string, many?: string) => string} */
export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/**
 * Devices of a card, of which hosts stand for several each.
 * @type {(card: Pick<Card, "devices">) => number}
 */
export const devicesOn = (card) => card.devices.reduce((sum, { members }) => sum + (members?.length ?? 1), 0);

/**
 * A device, a card or a pair that is pointed at.
 * @type {(hit: Hit, facts: Facts) => string}
 */
export function describe(hit, { document, pairs, tasks, uses, slow }) {
  if (hit.kind === "device") {
    const device = document.devices.find(({ name }) => name === hit.name);
    const task = Object.hasOwn(tasks, hit.name) ? tasks[hit.name] : null;
    const gpus = device?.members ? `${device.members.length} × ${device.gpu}` : device?.gpu;
    return [
      hit.name,
      gpus,
      device?.region || "no region",
      task ? `stage ${task[0]}, pipeline ${task[1]}` : "",
      slow.has(hit.name) ? "a suspect: see Compare" : "",
    ]
      .filter(Boolean)
      .join(" · ");
  }
  if (hit.kind === "region" || hit.kind === "more") {
    const inside = document.regions.find(({ name }) => name === hit.name);
    const within = inside?.latency_ms === undefined ? "" : `\ninside: ${linkText(inside.bandwidth_gbps, inside.latency_ms).join(", ")}`;
    const more = hit.kind === "more" ? "\nclick to see all" : "";
    return `${hit.name || "no region"}: ${count(devicesOn(hit.card), "device")}${within}${more}`;
  }
  const pair = there(pairs.get(hit.key));
  const use = uses.get(hit.key);
  const why = { line: "", default: "by the default", filled: `by distance, ${pair.distance_km?.toLocaleString("en-US")} km` }[pair.kind];
  const sends = [
    use?.hops.length ? count(use.hops.length, "hop") : "",
    use?.averages.length ? `averaging of ${count(use.averages.length, "pair")}` : "",
  ].filter(Boolean);
  const capped = pair.nics === null ? "" : `limited to ${short(pair.nics)} Gbit/s by their NICs`;
  return [`${pair.a} – ${pair.b}`, ...numbers(pair), capped, why, sends.length ? `the plan: ${sends.join(", ")}` : "the plan does not use it"]
    .filter(Boolean)
    .join("\n");
}

/**
 * "0.79 Gbit/s, 67 ms", both ways where they differ.
 * @type {(pair: Pair) => string[]}
 */
function numbers({ a, b, there, back, kind }) {
  /** @type {(conditions: Conditions) => string} */
  const say = ({ latency_ms, bandwidth_gbps }) => `${kind === "filled" ? "≈ " : ""}${short(bandwidth_gbps)} Gbit/s, ${short(latency_ms)} ms`;
  if (there.latency_ms === back.latency_ms && there.bandwidth_gbps === back.bandwidth_gbps) return [say(there)];
  return [`${a} → ${b}: ${say(there)}`, `${b} → ${a}: ${say(back)}`];
}
