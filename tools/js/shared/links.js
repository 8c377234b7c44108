// How a link looks, in every view alike: width says bandwidth, dashes say latency.

/**
 * Pixels: 0.01 Gbit/s is a hair, 1 Gbit/s three, 100 Gbit/s and more seven.
 * @type {(gbps: number) => number}
 */
export const linkWidth = (gbps) => Math.min(7, Math.max(1, 3.4 + 1.4 * Math.log10(Math.max(gbps, 1e-4))));

/** @type {[number, number[]][]} */
const DASHES = [
  [30, []],
  [80, [10, 4]],
  [150, [5, 4]],
  [Infinity, [1.5, 5]],
];

/**
 * The dash pattern in pixels: solid below 30 ms, long below 80, short below 150, dots above.
 * @type {(latencyMs: number) => number[]}
 */
export const linkDash = (latencyMs) => DASHES.find(([below]) => latencyMs < below)?.[1] ?? DASHES.at(-1)[1];

/**
 * A number for people: three digits that count, no trailing noise.
 * @type {(value: number) => string}
 */
export function short(value) {
  if (!Number.isFinite(value)) return "∞";
  const size = Math.abs(value);
  if (size >= 1e6) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size < 0.01 ? 2 : 3)));
}

/**
 * ["0.52 Gbit/s", "96 ms"].
 * @type {(gbps: number, latencyMs: number) => [string, string]}
 */
export const linkText = (gbps, latencyMs) => [`${short(gbps)} Gbit/s`, `${short(latencyMs)} ms`];
