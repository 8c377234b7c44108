// What is drawn, as Python says it: columns, labels and words of the model.
import { typed } from "shared/dom.js";
import { GREY } from "shared/theme.js";
import { Bars, COLUMNS, lanesOf, NO_BARS } from "./bars.js";
import { arrange } from "./layout.js";
import { inksOf } from "./overlays.js";
import { axisUnit } from "./paint.js";
import { WAITED } from "./waited.js";

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
/** Traits by what has to be read anew when they change. */
export const BAR_TRAITS = [...Object.keys(COLUMNS), "after", "messages", "path", "ghost", "ends"];
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

const read = (column, types) => Object.fromEntries(Object.entries(types).map(([name, type]) => [name, typed(column(name), type)]));

/** The upper bars, their messages and their critical path. */
export function readUpper(model) {
  const columns = read((name) => model.get(name), COLUMNS);
  const upper = columns.start.length ? new Bars(columns) : NO_BARS;
  const [messages, path, old] = [
    ["messages", MESSAGES],
    ["path", PATH],
    ["ghost", GHOST],
  ].map(([trait, types]) => read((name) => model.get(trait)[name], types));
  messages.reach = latestSoFar(messages.arrives);
  path.reach = latestSoFar(path.end);
  const ghost = old.start.length ? new Bars({ ...old, kind: new Uint8Array(old.row.length) }) : NO_BARS;
  return { upper, ghost, columns: { ...columns, after: typed(model.get("after"), Int32Array) }, messages, path };
}

function latestSoFar(times) {
  let latest = -Infinity;
  return times.map((time) => (latest = Math.max(latest, time)));
}

/** Everything else that the chart needs. `open` is the unit whose devices are drawn. */
export function readRest(model, { upper, lower, open }) {
  const labels = model.get("rows");
  const kinds = model.get("kinds").map(({ name, color, shades, dark_shades: darkShades, family, message }) => {
    const known = shades?.length ? shades : [color || GREY];
    const dark = darkShades?.length ? darkShades : known;
    const at = family === "step" ? "averaging" : family; // an optimiser's step waits for averages
    return {
      name,
      looks: [known, dark],
      family: message || !WAITED.includes(at) ? undefined : WAITED.indexOf(at),
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
    lit: (unit) => (stage >= 0 && unit.stage === stage && !unit.depth) || (unit.isOpen ? false : unit.names.some((name) => selected.has(name))),
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

/** From the first bar's beginning to the last one's end, gaps among them, and the unit of the axis that goes with it. */
export function extent(upper, lower, ends, unit, interval = [], gaps = []) {
  const first = Math.min(upper.first, lower.first, ...gaps.map(({ from }) => from));
  const last = Math.max(upper.last, lower.last, ...gaps.map(({ to }) => to));
  const old = Math.max(last, ...ends.map(({ at }) => at));
  const kept = Math.max(old < first + (last - first) * FARTHEST ? old : last, Math.min(interval[1] ?? last, first + (last - first) * BEYOND));
  const whole = last > first ? [first, kept] : [0, 1];
  return { whole, unit: axisUnit(whole[1] - whole[0], unit) };
}
