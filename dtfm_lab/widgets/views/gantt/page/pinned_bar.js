// The clicked bar: outlined, described in a line below, with keys to its neighbours.
import { h } from "shared/dom.js";
import { counterpart } from "./bars.js";
/** @import { Bars } from "./bars.js" */
/** @import { Bar, Context, Place, Theme } from "../types.d.ts" */

/**
 * `barsNow()` are the columns now, `about(bar)` words on a bar, `changed()` asks for a repaint.
 * It stays pinned when new bars come, as long as the same action is among them.
 * @type {(barsNow: () => Bars, about: (bar: Bar) => string[], changed: () => void) => { element: HTMLElement, pin: (found: Bar | null) => void, follow: () => void, neighbour: (by: number, row: number, from: number) => Bar | null, outline: (context: Context, place: Place, theme: Theme) => void, isPinned: () => boolean }}
 */
export function pinnedBar(barsNow, about, changed) {
  let pinned = /** @type {Bar | null} */ (null);
  const words = h("span");
  const element = h(
    "div",
    { class: "dtfm-pinned", role: "status", hidden: true },
    words,
    h("button", { type: "button", title: "Deselect this bar (Esc)", "aria-label": "Deselect this bar", onclick: () => pin(null) }, "✕"),
  );

  /** @type {(found: Bar | null) => void} */
  function pin(found) {
    pinned = found;
    words.textContent = words.title = found ? about(found).join(" · ") : "";
    element.hidden = !found;
    changed();
  }

  /** After new bars. */
  function follow() {
    if (pinned) pin(counterpart(barsNow(), pinned));
  }

  /**
   * The bar before or after the one that is pinned, of its row; without one, the first of `row` that ends after `from`.
   * @type {(by: number, row: number, from: number) => Bar | null}
   */
  function neighbour(by, row, from) {
    const bars = barsNow();
    /** @type {number[]} */
    const along = [];
    for (let kind = 0; kind < bars.nKinds; kind++) {
      const [begin, end] = bars.strip(pinned?.row ?? row, kind);
      for (let at = begin; at < end; at++) along.push(at);
    }
    along.sort((one, other) => bars.start[one] - bars.start[other] || one - other);
    const id = pinned?.id;
    const now = id !== undefined ? along.findIndex((at) => bars.id[at] === id) + by : along.findIndex((at) => bars.end[at] >= from);
    const at = along[Math.min(along.length - 1, Math.max(0, now))];
    return at === undefined ? null : bars.bar(at);
  }

  /** @type {(context: Context, place: Place, theme: Theme) => void} */
  function outline(context, place, theme) {
    if (!pinned || !place.isShown(pinned.row)) return;
    const [top, height] = place.band(pinned.row, pinned.kind);
    const [left, right] = [Math.max(place.left, place.x(pinned.start)), Math.min(place.right, place.x(pinned.end))];
    if (right < place.left || left > place.right) return;
    context.save();
    context.beginPath();
    context.rect(0, place.top, place.right + 4, place.rowsBottom - place.top);
    context.clip();
    for (const [width, color] of /** @type {[number, string][]} */ ([
      [5, theme.surface],
      [2.5, theme.text],
    ])) {
      context.strokeStyle = color;
      context.lineWidth = width;
      context.strokeRect(left - 1.5, top - 1.5, right - left + 3, height + 3);
    }
    context.restore();
  }

  return { element, pin, follow, neighbour, outline, isPinned: () => pinned !== null };
}
