// A bar left or right of zero on a scale that all rows share, with its interval where one is known.
import { h } from "shared/dom.js";
import { seconds } from "shared/axis.js";

const WIDEST = 2; // times the largest error, beyond which an interval's end is cut off
const ROOM = 0.04; // of the width, at both ends

export function scaleOf(rows) {
  const errors = rows.map((row) => row.error_s);
  const largest = Math.max(0, ...errors.map(Math.abs)) || 1e-6;
  const ends = rows.flatMap((row) => [row.low_s, row.high_s]).filter((end) => end !== null && Math.abs(end) <= WIDEST * largest);
  const low = Math.min(0, ...errors, ...ends);
  const high = Math.max(0, ...errors, ...ends);
  const span = high - low || largest;
  const at = (value) => 100 * (ROOM + (1 - 2 * ROOM) * ((Math.min(high, Math.max(low, value)) - low) / span));
  return { low, high, at };
}

/** Over the column: where 0 is, and what the sides mean. */
export function axis({ low, high, at }) {
  const mark = (value, text, side) => h("span", { class: `dtfm-axis-${side}`, style: `left:${at(value)}%` }, text);
  return h("div", { class: "dtfm-residuals-axis", "aria-hidden": "true" },
    low < 0 && at(0) > 18 ? mark(low, signed(low), "low") : null, mark(0, "0", "zero"), high > 0 && at(0) < 82 ? mark(high, signed(high), "high") : null);
}

export function bar(row, scale) {
  const [from, to] = [scale.at(Math.min(0, row.error_s)), scale.at(Math.max(0, row.error_s))];
  const interval = row.low_s !== null && row.high_s !== null && row.high_s > row.low_s
    ? h("i", { class: "dtfm-interval", style: `left:${scale.at(row.low_s)}%;width:${scale.at(row.high_s) - scale.at(row.low_s)}%` }) : null;
  const value = signed(row.error_s);
  const beyond = interval ? `${value}, 95 % interval ${signed(row.low_s)} to ${signed(row.high_s)}` : value;
  return h("td", { class: "dtfm-residuals-error_s", title: beyond }, h("div", { class: "dtfm-residuals-line" },
    h("div", { class: "dtfm-residuals-plot", role: "img", "aria-label": beyond },
      h("i", { class: "dtfm-zero", style: `left:${scale.at(0)}%` }),
      h("i", { class: `dtfm-bar ${row.error_s < 0 ? "dtfm-short" : "dtfm-long"}`, style: `left:${from}%;width:${to - from}%` }),
      interval),
    h("span", {}, value)));
}

export function signed(value) {
  return `${value > 0 ? "+" : ""}${seconds(value)}`.replace("-", "−");
}
