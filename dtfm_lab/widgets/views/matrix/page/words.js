// A cell in words: "ada → eve: 67 ms, 0.8 Gbit/s (between Oregon and Tokyo)".
import { figures } from "shared/axis.js";
/** @import { Filled } from "shared/types.d.ts" */
/** @import { Data } from "../types.d.ts" */

const CAPPED = 8; // as Python's matrix_view has it
const [DEFAULT, DISTANCE, PAIR, REGION, LINK] = [1, 2, 3, 4, 5]; // link_origins.Origin

/**
 * `data` is {names, latency, bandwidth, origin, regionAt(index), filled}.
 * @type {(data: Data, row: number, column: number) => string}
 */
export function cellWords(data, row, column) {
  const { names, regionAt } = data;
  if (row === column) return `${names[row]}: a device with itself`;
  const at = row * names.length + column;
  const code = data.origin[at] ?? 0;
  const why = reason(code % CAPPED, regionAt(row), regionAt(column), data.filled);
  const sources = [why, code >= CAPPED ? "capped by a NIC" : ""].filter(Boolean).join(", ");
  const about = code % CAPPED === DISTANCE ? "≈ " : "";
  const numbers = `${about}${figures(data.latency[at])} ms, ${figures(data.bandwidth[at])} Gbit/s`;
  return `${names[row]} → ${names[column]}: ${numbers}${sources ? ` (${sources})` : ""}`;
}

/** @type {(origin: number, a: string, b: string, filled: Filled[]) => string} */
function reason(origin, a, b, filled) {
  if (origin === DEFAULT) return "as any other pair";
  if (origin === REGION) return `inside ${a}`;
  if (origin === PAIR) return `between ${a} and ${b}`;
  if (origin === LINK) return "its own link";
  if (origin !== DISTANCE) return "";
  const pair = filled.find(({ regions: [x, y] }) => (x === a && y === b) || (x === b && y === a));
  return `between ${a} and ${b} by distance${pair ? `, ${pair.distance_km.toLocaleString("en-US")} km` : ""}`;
}
