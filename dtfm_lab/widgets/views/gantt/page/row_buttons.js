// The labels of the chart's rows as buttons, so that a keyboard and a screen reader find them; the canvas draws them.
import { h } from "shared/dom.js";
import { roving } from "shared/roving.js";
/** @import { Place, Unit } from "../types.d.ts" */

/**
 * `pressed(unit, event)` and `pointed(unit)` hear of the rows; `scrolled()` asks for a repaint. `element` scrolls where
 * the rows need more than their box; `show(place)` lays the buttons on the labels.
 * @type {(on: { pressed: (unit: Unit, event: PointerEvent) => void, pointed: (unit: Unit | null) => void, scrolled: () => void }) => { element: HTMLElement, show: (place: Place) => void, scroll: () => number }}
 */
export function rowButtons({ pressed, pointed, scrolled }) {
  const inside = h("div", { class: "dtfm-gantt-inside" });
  const element = h("div", { class: "dtfm-gantt-scroller" }, inside);
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /** @type {Unit[]} */
  const units = [];
  let shown = "";
  const refresh = roving(
    inside,
    () => buttons.slice(0, units.length),
    () => 1,
  );
  element.addEventListener("scroll", scrolled);

  /** @type {(at: number) => HTMLButtonElement} */
  function button(at) {
    return h("button", {
      type: "button",
      class: "dtfm-gantt-row",
      onclick: (event) => pressed(units[at], event),
      onpointerenter: () => pointed(units[at]),
      onpointerleave: () => pointed(null),
      onfocus: () => pointed(units[at]),
      onblur: () => pointed(null),
    });
  }

  /** @type {(place: Place) => void} */
  function show(place) {
    const top = place.top - element.scrollTop;
    const key = JSON.stringify([
      place.left,
      place.rowsBottom,
      place.contentHeight,
      place.shown.map((unit, slot) => [
        unit.label,
        unit.tip,
        unit.isOpen,
        unit.nMembers,
        Math.round(place.slotTop(slot) - top),
        Math.round(place.heightOf(slot)),
      ]),
    ]);
    if (key === shown) return;
    shown = key;
    Object.assign(element.style, { top: `${place.top}px`, height: `${place.rowsBottom - place.top}px` });
    inside.style.height = `${Math.floor(place.contentHeight)}px`;
    units.splice(0, Infinity, ...place.shown);
    units.forEach((unit, slot) => {
      if (!buttons[slot]) inside.append((buttons[slot] = button(slot)));
      const at = buttons[slot];
      Object.assign(at.style, { top: `${place.slotTop(slot) - top}px`, height: `${place.heightOf(slot)}px`, width: `${place.left}px` });
      at.setAttribute("aria-label", [unit.stage >= 0 && !unit.depth ? `stage ${unit.stage}` : "", unit.label].filter(Boolean).join(", "));
      at.title = unit.tip;
      if (unit.nMembers) at.setAttribute("aria-expanded", String(unit.isOpen));
      else at.removeAttribute("aria-expanded");
    });
    for (const spare of buttons.splice(units.length)) spare.remove();
    refresh();
  }

  return { element, show, scroll: () => element.scrollTop };
}
