// Two bars left or right of zero on a scale that all rows share: the row's own error with its interval, and below it the last arrival.
import { h } from "shared/dom.js";
import { seconds } from "shared/axis.js";
/** @import { Row, Scale } from "../types.d.ts" */

const WIDEST = 2; // times the largest error, beyond which an interval's end is cut off
const ROOM = 0.03; // of the width, at both ends

/** @type {(rows: Row[]) => Scale} */
export function scaleOf(rows) {
  const values = rows.flatMap((row) => [row.error_s, row.second_s ?? 0]);
  const largest = Math.max(0, ...values.map(Math.abs)) || 1e-6;
  const ends = rows.flatMap((row) => [row.low_s ?? NaN, row.high_s ?? NaN]).filter((end) => Math.abs(end) <= WIDEST * largest);
  const low = Math.min(0, ...values, ...ends);
  const high = Math.max(0, ...values, ...ends);
  const span = high - low || largest;
  /** @type {(value: number) => number} */
  const at = (value) => 100 * (ROOM + (1 - 2 * ROOM) * ((Math.min(high, Math.max(low, value)) - low) / span));
  return { low, high, at };
}

/** @type {(row: Row, scale: Scale) => HTMLElement} */
export function bar(row, scale) {
  const interval =
    row.low_s !== null && row.high_s !== null && row.high_s > row.low_s
      ? h("i", { class: "dtfm-residuals-interval", style: `left:${scale.at(row.low_s)}%;width:${scale.at(row.high_s) - scale.at(row.low_s)}%` })
      : null;
  const value = signed(row.error_s);
  const said = [
    interval ? `${value}, 95 % interval ${signed(row.low_s ?? NaN)} to ${signed(row.high_s ?? NaN)}` : value,
    ...(row.second_s === null ? [] : [`last arrival ${signed(row.second_s)}`]),
  ].join("; ");
  return h(
    "td",
    { class: "dtfm-residuals-bars", title: said },
    h(
      "div",
      { class: "dtfm-residuals-plot", role: "img", "aria-label": said },
      h("i", { class: "dtfm-residuals-zero", style: `left:${scale.at(0)}%` }),
      stripe(row.error_s, scale, `dtfm-residuals-own dtfm-residuals-${row.error_s < 0 ? "short" : "long"}`),
      row.second_s === null ? null : stripe(row.second_s, scale, "dtfm-residuals-second"),
      interval,
    ),
  );
}

/** @type {(value: number, scale: Scale, className: string) => HTMLElement} */
function stripe(value, scale, className) {
  const [from, to] = [scale.at(Math.min(0, value)), scale.at(Math.max(0, value))];
  return h("i", { class: className, style: `left:${from}%;width:${to - from}%` });
}

/** @type {(value: number) => string} */
export function signed(value) {
  return `${value > 0 ? "+" : ""}${seconds(value)}`.replace("-", "−");
}
