// What is drawn, as Python says it: columns, labels and words of the model.
import { typed } from "shared/dom.js";
import { GREY } from "shared/theme.js";
import { Bars, COLUMNS, lanesOf, NO_BARS } from "./bars.js";
import { arrange } from "./layout.js";
import { inksOf } from "./overlays.js";
import { axisUnit } from "./paint.js";
import { WAITED } from "./waited.js";
/** @import { Binary } from "shared/traits.d.ts" */
/** @import { Model } from "shared/types.d.ts" */
/** @import { AxisUnit, End, Gap, Messages, Path, State, Traits, Types, Unit } from "../types.d.ts" */

const MESSAGES = {
  source: Uint16Array,
  target: Uint16Array,
  leaves: Float32Array,
  arrives: Float32Array,
  kind: Uint8Array,
  microbatch: Int32Array,
};
const PATH = { row: Uint16Array, start: Float32Array, end: Float32Array, bar: Int32Array };
const GHOST = { start: Float32Array, end: Float32Array, row: Uint16Array };
/**
 * Traits by what must be read again when they change.
 * @type {(keyof Traits)[]}
 */
export const BAR_TRAITS = [.../** @type {(keyof typeof COLUMNS)[]} */ (Object.keys(COLUMNS)), "after", "messages", "path", "ghost", "ends"];
/** @type {(keyof Traits)[]} */
export const TEXT_TRAITS = [
  "title",
  "caption",
  "height",
  "rows",
  "names",
  "kinds",
  "time_unit",
  "devices_per_pipeline",
  "show_path",
  "show_messages",
  "units",
  "n_stages",
  "devices",
  "selected",
  "selected_stage",
  "busy",
  "stale",
  "empty_words",
  "shares",
  "bare",
  "overview",
  "interval",
  "gaps",
];

/** @type {<T extends Types>(column: (name: string) => Binary, types: T) => { [K in keyof T]: InstanceType<T[K]> }} */
const read = (column, types) =>
  /** @type {any} any: name by name of the types that are given */ (
    Object.fromEntries(Object.entries(types).map(([name, type]) => [name, typed(column(name), type)]))
  );

/**
 * The upper bars, their messages and their critical path.
 * @type {(model: Model<Traits>) => Pick<State, "upper" | "ghost" | "columns" | "messages" | "path">}
 */
export function readUpper(model) {
  const columns = read((name) => model.get(/** @type {keyof typeof COLUMNS} */ (name)), COLUMNS);
  const upper = columns.start.length ? new Bars(columns) : NO_BARS;
  const messages = read((name) => model.get("messages")[name], MESSAGES);
  const path = read((name) => model.get("path")[name], PATH);
  const old = read((name) => model.get("ghost")[name], GHOST);
  const ghost = old.start.length ? new Bars({ ...old, kind: new Uint8Array(old.row.length) }) : NO_BARS;
  return {
    upper,
    ghost,
    columns: { ...columns, after: typed(model.get("after"), Int32Array) },
    messages: { ...messages, reach: latestSoFar(messages.arrives) },
    path: { ...path, reach: latestSoFar(path.end) },
  };
}

/** @type {(times: Float32Array<ArrayBuffer>) => Float32Array<ArrayBuffer>} */
function latestSoFar(times) {
  let latest = -Infinity;
  return times.map((time) => (latest = Math.max(latest, time)));
}

/**
 * Everything else that the chart needs. `open` is the unit whose devices are drawn.
 * @type {(model: Model<Traits>, now: Pick<State, "upper" | "lower" | "open">) => Omit<State, "upper" | "lower" | "ghost" | "overlays" | "open" | "columns" | "messages" | "path" | "isGliding">}
 */
export function readRest(model, { upper, lower, open }) {
  const labels = model.get("rows");
  const kinds = model.get("kinds").map(({ name, color, shades, dark_shades: darkShades, family, message }) => {
    const known = shades?.length ? shades : [color || GREY];
    const dark = darkShades?.length ? darkShades : known;
    const at = family === "step" ? "averaging" : family; // an optimiser's step waits for averages
    return {
      name,
      looks: [known, dark],
      family: message || at === undefined || !WAITED.includes(at) ? undefined : WAITED.indexOf(at),
      message: !!message,
      fills: !!message && family === "averaging",
    };
  });
  const dressed = [0, 1].map((dark) => kinds.map(({ looks, ...kind }) => ({ ...kind, color: looks[dark][0], shades: looks[dark], inks: inksOf(looks[dark]) })));
  const nRows = Math.max(labels.length, upper.nRows, lower.nRows);
  const devices = model.get("devices");
  const selected = new Set(model.get("selected"));
  const stage = model.get("selected_stage");
  const names = Array.from({ length: nRows }, (_, row) => model.get("names")[row] ?? labels[row] ?? `row ${row}`);
  return {
    names,
    kinds,
    devices,
    kindsIn: (dark) => dressed[dark ? 1 : 0],
    /** A selected device lights its own row, or its stage's while that is closed. */
    lit: (unit) => (stage >= 0 && unit.stage === stage && !unit.depth) || (unit.isOpen ? false : unit.names.some((name) => selected.has(name ?? ""))),
    lanes: lanesOf(
      kinds.length,
      kinds.map(({ fills }) => fills),
      upper,
      lower,
    ),
    perPipeline: model.get("devices_per_pipeline"),
    nStages: Math.max(1, model.get("n_stages")),
    arranged: arrange({ units: model.get("units"), nRows, labels, devices, open }),
    ends: model.get("ends"),
    interval: model.get("interval"),
    gaps: model.get("gaps"),
    averages: kinds.some(({ family, message }, kind) => !message && family === WAITED.indexOf("averaging") && upper.has(kind)),
    showPath: model.get("show_path"),
    showMessages: model.get("show_messages"),
  };
}

const FARTHEST = 1.8; // times the new iteration, up to which the end of the old one is kept in sight
const BEYOND = 1.1; // times the iteration, up to which the interval in which it may end is kept in sight

/**
 * From the first bar's beginning to the last one's end, gaps among them, and the unit of the axis that goes with it.
 * @type {(upper: Bars, lower: Bars, ends: End[], unit: string, interval?: number[], gaps?: Gap[]) => { whole: number[], unit: AxisUnit }}
 */
export function extent(upper, lower, ends, unit, interval = [], gaps = []) {
  const first = Math.min(upper.first, lower.first, ...gaps.map(({ from }) => from));
  const last = Math.max(upper.last, lower.last, ...gaps.map(({ to }) => to));
  const old = Math.max(last, ...ends.map(({ at }) => at));
  const kept = Math.max(old < first + (last - first) * FARTHEST ? old : last, Math.min(interval[1] ?? last, first + (last - first) * BEYOND));
  const whole = last > first ? [first, kept] : [0, 1];
  return { whole, unit: axisUnit(whole[1] - whole[0], unit) };
}
