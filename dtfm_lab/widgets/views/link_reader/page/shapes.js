// What the traits in a link must be: a link may come from anybody, and views trust their traits.
/** @import { Shape } from "../types.d.ts" */

export const MOST_DEVICES = 5000;
export const MOST_REGIONS = 300; // pipes are of pairs of them
export const MOST_BARS = 200_000;
export const MOST_S = 1e9;
export const DAMAGED = "The link is damaged or cut off: copy it again, whole.";

/** What is wrong with a link, in a line for its reader. */
export class LinkError extends Error {
  name = "LinkError";
}

/** @type {(sound: unknown, line?: string) => asserts sound} */
export function wanted(sound, line = DAMAGED) {
  if (!sound) throw new LinkError(line);
}

/** @type {(most?: number) => Shape} */
const text =
  (most = 300) =>
  (value) =>
    typeof value === "string" && value.length <= most;
/** @type {(least: number, most: number) => Shape} */
export const number = (least, most) => (value) => typeof value === "number" && value >= least && value <= most;
/** @type {(least: number, most: number) => Shape} */
export const whole = (least, most) => (value) => Number.isInteger(value) && /** @type {number} */ (value) >= least && /** @type {number} */ (value) <= most;
/** @type {Shape} */
const flag = (value) => typeof value === "boolean";
/** @type {(shape: Shape, most: number, least?: number) => Shape} */
export const list =
  (shape, most, least = 0) =>
  (value) =>
    Array.isArray(value) && value.length >= least && value.length <= most && value.every(shape);
/** @type {(shape: Shape, most: number) => Shape} */
const map = (shape, most) => (value) => isRecord(value) && Object.keys(value).length <= most && Object.values(value).every(shape);
/**
 * Whether a value of JSON has names for its parts. Any: what the parts are is looked at next.
 * @param {any} value
 * @returns {value is Record<string, any>}
 */
export const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/**
 * A record with all of `needed`, perhaps with `others`, and with nothing else.
 * @type {(needed: Record<string, Shape>, others?: Record<string, Shape>) => Shape}
 */
const record =
  (needed, others = {}) =>
  (value) =>
    isRecord(value)
    && Object.keys(needed).every((key) => Object.hasOwn(value, key))
    && Object.entries(value).every(([key, one]) => (Object.hasOwn(needed, key) ? needed[key](one) : Object.hasOwn(others, key) && others[key](one)));

export const name = text();
const names = list(name, 2 * MOST_DEVICES);
const stage = whole(0, MOST_DEVICES);
const speed = { latency_ms: number(0, 1e9), bandwidth_gbps: number(0, 1e9) };
const place = list(number(-360, 360), 2, 2);
const pair = list(name, 2, 2);
const device = record(
  { name, region: name, gpu: name, x: number(-1e6, 1e6), y: number(-1e6, 1e6) },
  {
    host: name,
    measured_as: name,
    gpus: whole(1, 1e6),
    price_per_hour: number(0, 1e9),
    uplink_gbps: number(0, 1e9),
    downlink_gbps: number(0, 1e9),
    inner: record(speed),
    inside: record(speed),
    members: names,
    hardware: record({ gpu: name, peak_tflops: number(0, 1e12), memory_gib: number(0, 1e12) }),
  },
);
const between = record(speed, { regions: pair, from: name, to: name, distance_km: number(0, 1e6) });
const color = (/** @type {unknown} */ value) => typeof value === "string" && /^#[0-9a-f]{3,8}$/i.test(value);
const unit = { label: name, rows: list(whole(0, 2 * MOST_DEVICES), 8), device: name, stage, replica: whole(-1, MOST_DEVICES), tip: text(2000) };
const family = (/** @type {unknown} */ value) => FAMILIES.includes(/** @type {string} */ (value));
export const FAMILIES = ["forward", "backward", "averaging", "step"];
export const words = text(2000);

/** @type {Record<string, Record<string, Shape>>} */
export const VIEWS = {
  top_bar: {
    network: list(name, 2, 2),
    job: list(name, 2, 2),
    numbers: list(
      record(
        { label: name, value: name },
        { was: name, note: words, short: words, word: name, why: words, bad: flag, under: list(words, 2), ask: map(words, 5) },
      ),
      20,
    ),
    headline: record({ lead: words, rest: words, kind: name }),
  },
  map: {
    document: record(
      {
        name,
        devices: list(device, MOST_DEVICES),
        regions: list(record({ name, ...speed }), MOST_REGIONS),
        between: list(between, MOST_REGIONS ** 2),
        links: list(record({ source: name, target: name, ...speed, one_way: flag }), MOST_BARS),
        default: record(speed),
      },
      { description: text(20_000), fill: name },
    ),
    filled: list(between, MOST_REGIONS ** 2),
    highlight: record({ stages: map(stage, MOST_DEVICES), tasks: map(list(stage, 2, 2), MOST_DEVICES) }),
    places: map(place, MOST_REGIONS),
    playback_devices: names,
  },
  player: { source: (value) => value === "" || value === "predicted" },
  gantt: {
    rows: names,
    names,
    devices: names,
    units: list(record(unit, { members: list(record(unit), MOST_DEVICES) }), MOST_DEVICES),
    devices_per_pipeline: stage,
    n_stages: stage,
    title: words,
    caption: words,
    shares: list(record({ name, share: number(0, 1.001), tone: name }), 20),
    interval: list(number(0, MOST_S), 2),
    kinds: list(record({ name, color, family, message: flag, shades: list(color, 100, 1), dark_shades: list(color, 100, 1) }), 30),
  },
  legend: { n_stages: stage },
};
