// What the map says in words: what is pointed at, and the legend.
import { figures } from "shared/axis.js";
import { h } from "shared/dom.js";
import { numbers } from "./paint.js";

const MOST_GPUS = 8; // in the legend

export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** A device, a region or a line that is pointed at. */
export function describe(hit, { document, lines, stages }) {
  if (hit.kind === "device") {
    const device = document.devices.find(({ name }) => name === hit.name);
    const stage = Object.hasOwn(stages, hit.name) ? stages[hit.name] : undefined;
    return [hit.name, device?.gpu, device?.region || "no region", stage === undefined ? "" : `stage ${stage}`].filter(Boolean).join(" · ");
  }
  if (hit.kind === "region") {
    const inside = document.regions.find(({ name }) => name === hit.name);
    const within = inside?.latency_ms === undefined ? "" : `\ninside: ${figures(inside.latency_ms)} ms, ${figures(inside.bandwidth_gbps)} Gbit/s`;
    return `${hit.name || "no region"}: ${count(hit.group.devices.length, "device")}${within}`;
  }
  const line = lines.find(({ a, b }) => a === hit.a && b === hit.b);
  const why = { line: "", default: "as the default says", filled: `by distance, ${line.distance_km?.toLocaleString("en-US")} km` }[line.kind];
  return [`${hit.a} – ${hit.b}`, ...numbers(line), why].filter(Boolean).join("\n");
}

/** Entries of the legend: colours of stages or GPUs, and of lines what there is. */
export function legendOf(document, lines, stages, gpuColor) {
  const nStages = 1 + Math.max(-1, ...Object.values(stages));
  const gpus = [...new Set(document.devices.map(({ gpu }) => gpu))].slice(0, MOST_GPUS);
  const swatch = (gpu) => h("span", {}, h("i", { class: "dtfm-swatch", style: `color:${gpuColor(gpu)};border-radius:50%` }), gpu || "no GPU");
  return [
    ...(nStages ? [h("span", {}, `colour and number: stage, 0 to ${nStages - 1}`)] : gpus.map(swatch)),
    ...(lines.length ? [h("span", {}, "width: bandwidth")] : []),
    ...(lines.some(({ kind }) => kind === "filled") ? [h("span", {}, h("i", { class: "dtfm-line-filled" }), "≈ by distance")] : []),
  ];
}
