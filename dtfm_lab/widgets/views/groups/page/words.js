// What is written beside things; every number comes with its unit.
import { seconds } from "shared/axis.js";
/** @import { Group, LinkRow, Network, Places, Step } from "../types.d.ts" */

/** @type {(group: Group) => string} */
export const letterOf = (group) => group.letter ?? String(group.stage);

/** @type {(n: number, noun: string) => string} */
export const counted = (n, noun) => `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;

/**
 * "+0.51 s", "−3 ms", "no change": to be read beside a cost.
 * @type {(difference: number, of: number) => string}
 */
export function change(difference, of) {
  if (Math.abs(difference) <= 1e-9 * of) return "no change";
  const size = Math.abs(difference);
  return `${difference > 0 ? "+" : "−"}${of >= 1 && size >= 0.005 && size < 100 ? `${size.toFixed(2)} s` : seconds(size)}`;
}

/**
 * Cheaper, equal or more expensive: a class and a sign, so that colour is not the only mark.
 * @type {(difference: number, of: number) => { kind: string, sign: string }}
 */
export function verdict(difference, of) {
  if (Math.abs(difference) <= 1e-9 * of) return { kind: "same", sign: "=" };
  return difference < 0 ? { kind: "better", sign: "▼" } : { kind: "worse", sign: "▲" };
}

/** @type {(name: string, data: { groups: Group[], network: Network, places: Places }) => string} */
export function deviceWords(name, { groups, network, places }) {
  const known = network.devices?.find((device) => device.name === name);
  const place = places.get(name);
  const lines = [known?.region && !name.startsWith(known.region) ? `${name} · ${known.region}` : name];
  if (!place) lines.push("idle");
  else {
    const own = groups[place.stage].device_s?.[place.replica];
    lines.push(`stage ${place.stage}, pipeline ${place.replica}${own === undefined ? "" : ` · synchronises in ${seconds(own)}`}`);
  }
  return lines.join("\n");
}

/** @type {(group: Group, step: Step) => string} */
export function groupWords(group, step) {
  const what = step === "e" || !group.letter ? `Stage ${group.stage}` : `Group ${group.letter}`;
  return `${what} · ${counted(group.devices.length, "device")} · ${seconds(group.cost_s)}`;
}

/** @type {(groups: Group[], a: number, b: number, weight: number, step: Step) => string} */
export function edgeWords(groups, a, b, weight, step) {
  const lettered = step !== "e" && groups[a].letter;
  const [from, to] = [a, b].map((k) => (lettered ? `group ${groups[k].letter}` : `stage ${groups[k].stage}`));
  return `${from[0].toUpperCase()}${from.slice(1)} to ${to}, ${seconds(weight)}`;
}

/** @type {(link: LinkRow, from: string, to: string, bundle: boolean) => string} */
export function linkWords([, , , ms, gbps, msBack, gbpsBack], from, to, bundle) {
  const median = bundle ? " (median)" : "";
  /** @type {(source: string, target: string, latency: number, bandwidth: number) => string} */
  const way = (source, target, latency, bandwidth) => `${source} → ${target}: ${latency} ms, ${bandwidth} Gbit/s${median}`;
  return `${way(from, to, ms, gbps)}\n${way(to, from, msBack, gbpsBack)}`;
}
