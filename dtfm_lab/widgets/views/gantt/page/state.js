// What is drawn, as Python says it: columns, labels and words of the model.
import { typed } from "shared/dom.js";
import { GREY } from "shared/theme.js";
import { Bars, COLUMNS, lanesOf, NO_BARS } from "./bars.js";
import { arrange } from "./layout.js";
import { inksOf } from "./overlays.js";
import { axisUnit } from "./paint.js";

const MESSAGES = {
  source: Uint16Array, target: Uint16Array, leaves: Float32Array, arrives: Float32Array, kind: Uint8Array,
  microbatch: Int32Array,
};
const PATH = { row: Uint16Array, start: Float32Array, end: Float32Array, bar: Int32Array };
const MEMORY = { time: Float32Array, held: Float32Array, other_time: Float32Array, other_held: Float32Array };
const named = (types, prefix) => Object.keys(types).map((name) => prefix + name);
/** Traits by what has to be read anew when they change. */
export const BAR_TRAITS = [...Object.keys(COLUMNS), "after", ...named(MESSAGES, "message_"), ...named(PATH, "path_")];
export const TEXT_TRAITS = [
  "title", "caption", "height", "rows", "names", "kinds", "time_unit", "devices_per_pipeline", "show_path", "show_messages",
  "order", "groups", "devices", "selected", "ends", "upper_name", "lower_name", "busy", "empty_words",
  ...named(MEMORY, "memory_"), "memory_limit", "memory_device",
];

const read = (model, types, prefix = "") => Object.fromEntries(
  Object.entries(types).map(([name, type]) => [name, typed(model.get(prefix + name), type)]));

/** The upper bars, their messages and their critical path. */
export function readUpper(model) {
  const columns = read(model, COLUMNS);
  const upper = columns.start.length ? new Bars(columns) : NO_BARS;
  const [messages, path] = [read(model, MESSAGES, "message_"), read(model, PATH, "path_")];
  messages.reach = latestSoFar(messages.arrives);
  path.reach = latestSoFar(path.end);
  return { upper, columns: { ...columns, after: typed(model.get("after"), Int32Array) }, messages, path };
}

function latestSoFar(times) {
  let latest = -Infinity;
  return times.map((time) => (latest = Math.max(latest, time)));
}

/** Everything else that the chart needs. */
export function readRest(model, { upper, lower }) {
  const labels = model.get("rows");
  const kinds = model.get("kinds").map(({ name, color, shades, edge, message }) => {
    const known = shades?.length ? shades : [color || GREY];
    return { name, color: color || GREY, shades: known, inks: inksOf(known), edge: edge || "", message: !!message };
  });
  const nRows = Math.max(labels.length, upper.nRows, lower.nRows);
  const devices = model.get("devices");
  const selected = new Set(model.get("selected"));
  const memory = read(model, MEMORY, "memory_");
  const lit = (row) => selected.has(devices[row]);
  const { mostLate, latestRow } = farthest(lower);
  const chosen = devices.findIndex((_, row) => lit(row));
  const driftRow = chosen >= 0 ? chosen : latestRow;
  const names = Array.from({ length: nRows }, (_, row) => model.get("names")[row] ?? labels[row] ?? `row ${row}`);
  return {
    labels: Array.from({ length: nRows }, (_, row) => labels[row] ?? `row ${row}`),
    names, kinds, devices, lit, mostLate, driftRow,
    driftWords: devices[driftRow] ?? names[driftRow] ?? "",
    lanes: lanesOf(kinds.length, upper, lower),
    perPipeline: model.get("devices_per_pipeline"),
    arranged: arrange({ nRows, order: model.get("order"), groups: model.get("groups"), devices }),
    ends: model.get("ends"),
    length: Math.max(0, upper.last - upper.first),
    showPath: model.get("show_path"),
    showMessages: model.get("show_messages"),
    halves: lower === NO_BARS ? null : [model.get("upper_name"), model.get("lower_name")],
    memory: {
      time: memory.time, held: memory.held, otherTime: memory.other_time, otherHeld: memory.other_held,
      limit: model.get("memory_limit"), device: model.get("memory_device"),
    },
  };
}

/** By how much any lower bar ends earlier or later, and the row where most. */
function farthest({ late, row }) {
  let [mostLate, latestRow] = [0, -1];
  for (let at = 0; at < (late?.length ?? 0); at++) {
    if (Math.abs(late[at]) > mostLate) [mostLate, latestRow] = [Math.abs(late[at]), row[at]];
  }
  return { mostLate, latestRow };
}

/** From the first bar's beginning to the last one's end, and the unit of the axis that goes with it. */
export function extent(upper, lower, unit) {
  const [first, last] = [Math.min(upper.first, lower.first), Math.max(upper.last, lower.last)];
  const whole = last > first ? [first, last] : [0, 1];
  return { whole, unit: axisUnit(whole[1] - whole[0], unit) };
}
