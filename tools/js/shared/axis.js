// Numbers on axes and in labels.

/**
 * Round values that cut [low, high] into about `count` steps.
 * @type {(low: number, high: number, count?: number) => number[]}
 */
export function ticks(low, high, count = 6) {
  const span = high - low;
  if (!(span > 0) || !isFinite(span)) return [low];
  const step = niceStep(span / Math.max(1, count));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/**
 * The powers of ten in [low, high], with 2s and 5s between when there are few.
 * @type {(low: number, high: number) => number[]}
 */
export function logTicks(low, high) {
  /** @type {number[]} */
  const values = [];
  const decades = Math.log10(high / low);
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const lead of decades < 2.5 ? [1, 2, 5] : [1]) values.push(lead * 10 ** power);
  return values.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

/** @type {(rough: number) => number} */
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const lead = rough / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

/**
 * As many decimals as it takes to tell neighbouring ticks apart.
 * @type {(value: number, step: number) => string}
 */
export function tickLabel(value, step) {
  const decimals = Math.min(9, Math.max(0, -Math.floor(Math.log10(step || 1) + 1e-9)));
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/**
 * 1234567 -> "1.2M", for axes that count.
 * @type {(value: number) => string}
 */
export function compact(value) {
  return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 3 });
}

/**
 * A number in three figures or so, without exponent: "0.1", "12.3", "1,234".
 * @type {(value: number, digits?: number) => string}
 */
export function figures(value, digits = 3) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: Math.max(digits, integerDigits(value)) });
}

/** @type {(value: number) => number} */
const integerDigits = (value) => (Math.abs(value) < 1 ? 1 : Math.floor(Math.log10(Math.abs(value))) + 1);

/**
 * "$1,234", "$12.30", "$0.0123": as ``format_dollars`` has it.
 * @type {(value: number) => string}
 */
export function dollars(value) {
  if (!isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return `$${Math.round(value).toLocaleString("en-US")}`;
  return size >= 1 ? `$${value.toFixed(2)}` : `$${figures(value)}`;
}

/**
 * "12.34 s", "3.214 s", "389 ms", "45.6 µs", "1 h 28 min": as ``format_s`` has it, since both are on one screen.
 * @type {(value: number) => string}
 */
export function seconds(value) {
  if (!isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= MINUTES_FROM_S) return `${value < 0 ? "-" : ""}${long(size)}`;
  if (size < 1e-9) return "0 s"; // rounding
  if (size >= 0.9995) return `${figures(value, 4)} s`;
  return size >= 0.9995e-3 ? `${figures(value * 1e3)} ms` : `${figures(value * 1e6)} µs`;
}

/** Durations from here on are written in minutes, hours or days, as ``format_s`` has it. */
const MINUTES_FROM_S = 119.95;

/**
 * Two units: "12 min 5 s", "1 h 28 min", "2 d 3 h".
 * @type {(value: number) => string}
 */
function long(value) {
  const [s, min, h] = [Math.round(value), Math.round(value / 60), Math.round(value / 3600)];
  if (s < 3600) return parts(s, 60, "min", "s");
  return min < 1440 ? parts(min, 60, "h", "min") : parts(h, 24, "d", "h");
}

/** @type {(whole: number, each: number, large: string, small: string) => string} */
const parts = (whole, each, large, small) => `${Math.floor(whole / each).toLocaleString("en-US")} ${large}${whole % each ? ` ${whole % each} ${small}` : ""}`;
