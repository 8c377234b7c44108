// The bar that a person has clicked: outlined, its words in a line below, and the way to its neighbours.
import { h } from "shared/dom.js";
import { counterpart } from "./bars.js";

/**
 * `barsOf(half)` are the columns now, `about({ bar, half })` words on a bar, `changed()` asks for a repaint.
 * What is held stays held when new bars come, as long as the same action is among them.
 */
export function holding(barsOf, about, changed) {
  let held = null; // { bar, half }
  const words = h("span");
  const element = h("div", { class: "dtfm-pinned", role: "status", hidden: true }, words,
    h("button", { type: "button", title: "Let go of this bar (Esc)", "aria-label": "Let go of this bar", onclick: () => hold(null) }, "✕"));

  function hold(found) {
    held = found;
    words.textContent = found ? about(found).join(" · ") : "";
    element.hidden = !found;
    changed();
  }

  /** After new bars. */
  function follow() {
    if (!held) return;
    const bar = counterpart(barsOf(held.half), held.bar);
    hold(bar && { bar, half: held.half });
  }

  /** The bar before or after the one that is held, of its row; without one, the first of `row` that ends after `from`. */
  function neighbour(by, row, from) {
    const half = held?.half ?? 0;
    const bars = barsOf(half);
    const along = [];
    for (let kind = 0; kind < bars.nKinds; kind++) {
      const [begin, end] = bars.strip(held?.bar.row ?? row, kind);
      for (let at = begin; at < end; at++) along.push(at);
    }
    along.sort((one, other) => bars.start[one] - bars.start[other] || one - other);
    const now = held ? along.findIndex((at) => bars.id[at] === held.bar.id) + by : along.findIndex((at) => bars.end[at] >= from);
    const at = along[Math.min(along.length - 1, Math.max(0, now))];
    return at === undefined ? null : { bar: bars.bar(at), half };
  }

  function outline(context, place, theme) {
    if (!held || !place.isShown(held.bar.row)) return;
    const { bar, half } = held;
    const [top, height] = place.band(bar.row, half, bar.kind);
    const [left, right] = [Math.max(place.left, place.x(bar.start)), Math.min(place.right, place.x(bar.end))];
    if (right < place.left || left > place.right) return;
    for (const [width, color] of [[5, theme.surface], [2.5, theme.text]]) {
      context.strokeStyle = color;
      context.lineWidth = width;
      context.strokeRect(left - 1.5, top - 1.5, right - left + 3, height + 3);
    }
  }

  return { element, hold, follow, neighbour, outline, isHolding: () => held !== null };
}
