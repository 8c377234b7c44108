// What the lines are.
import { h } from "shared/dom.js";
import { bestBounded, boundColor, seriesColor } from "./curve.js";
/** @import { Theme } from "shared/types.d.ts" */
/** @import { Curves } from "../types.d.ts" */

/** @type {(curves: Curves, boundLabel: string, theme: Theme) => HTMLElement[]} */
export function legendItems(curves, boundLabel, theme) {
  if (!curves.size) return [];
  const all = [...curves.values()];
  const one = all.length === 1;
  const items = one ? [item("", seriesColor(0, theme), "best")] : [...curves.keys()].map((name, index) => item("", seriesColor(index, theme), name));
  if (all.some((curve) => curve.has("median"))) items.push(item("dtfm-thin", one ? seriesColor(0, theme) : theme.softText, "median", "of the population"));
  if (bestBounded(curves)) items.push(item("dtfm-dashed", boundColor(curves, theme), boundLabel));
  return items;
}

/** @type {(kind: string, color: string, text: string, title?: string | null) => HTMLElement} */
function item(kind, color, text, title = null) {
  return h("span", { title }, h("i", { class: `dtfm-line-sample ${kind}`, style: `color:${color}` }), text);
}
