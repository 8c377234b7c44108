// Menus of the lab: boxes of widgets that lie over it. One is open at a time; Escape, a click elsewhere and the focus that
// leaves close it.

import { stopsIn, targetOf } from "shared/dom.js";
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */

const OPENERS = "[data-menu][aria-expanded=true], .dtfm-more-button.mod-active";

/** @type {(el: Element) => HTMLElement | null} */
const labOf = (el) => el.closest(".dtfm-lab");
/** @type {(el: Element, name: string) => HTMLElement | null | undefined} */
const boxOf = (el, name) => labOf(el)?.querySelector(`.dtfm-menu-${name}`);

/**
 * Opens the menu below its button, or closes it.
 * @type {(el: Element, name: string, button: HTMLElement) => void}
 */
export function toggleMenu(el, name, button) {
  const box = boxOf(el, name);
  const open = box && !box.classList.contains("dtfm-open");
  closeMenus(el);
  if (!open) return;
  const lab = there(labOf(el)).getBoundingClientRect(),
    place = button.getBoundingClientRect();
  box.classList.add("dtfm-open");
  box.setAttribute("role", "dialog");
  box.setAttribute("aria-label", button.textContent);
  box.style.left = `${Math.max(8, Math.min(place.left - lab.left, lab.width - box.offsetWidth - 12))}px`;
  button.setAttribute("aria-expanded", "true");
  box.querySelector("select, input:not([type=hidden]), button")?.focus({ preventScroll: true });
}

/**
 * Closes the bar's menus, and those of panes, whose buttons Python listens to.
 * @type {(el: Element, except?: Element | null) => boolean}
 */
export function closeMenus(el, except = null) {
  const lab = labOf(el);
  if (!lab) return false;
  let any = false;
  for (const box of lab.querySelectorAll(".dtfm-menu.dtfm-open"))
    if (!box.contains(except)) {
      box.classList.remove("dtfm-open");
      any = true;
    }
  for (const button of lab.querySelectorAll("[data-menu][aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
  for (const button of lab.querySelectorAll(".dtfm-more-button.mod-active"))
    if (!button.closest(".dtfm-more")?.contains(except)) {
      button.click();
      any = true;
    }
  return any;
}

/**
 * Closes what is open, and gives the focus to the button that had opened it.
 * @type {(el: Element) => boolean}
 */
export function leaveMenus(el) {
  const opener = [...(labOf(el)?.querySelectorAll(OPENERS) ?? [])].at(-1);
  if (!closeMenus(el)) return false;
  opener?.focus({ preventScroll: true });
  return true;
}

/** @type {(el: HTMLElement, cleanUp: CleanUps) => void} */
export function onMenus(el, cleanUp) {
  /** @type {(event: Event) => void} */
  const onOther = ({ target }) => {
    if (!(target instanceof Element) || target.closest(".dtfm-menu, .dtfm-more, [data-menu]")) return;
    closeMenus(el);
  };
  /** @type {(event: FocusEvent) => void} */
  const onFocus = (event) => {
    if (event.target !== labOf(el) && labOf(el)?.contains(targetOf(event))) onOther(event);
  };
  /** @type {(event: KeyboardEvent) => void} */
  const onKey = (event) => {
    const { key, shiftKey, target } = event;
    const box = /** @type {Element} */ (target).closest?.(".dtfm-lab > .dtfm-menu.dtfm-open, .dtfm-popover");
    if (!box || !labOf(el)?.contains(box)) return;
    // The bar's menus stand at the lab's end: past their first and last field one is at their button again.
    const isPast = key === "Tab" && box.matches(".dtfm-menu") && target === stopsIn(box).at(shiftKey ? 0 : -1);
    if (!(isPast || key === "Escape") || !leaveMenus(el)) return; // some fields keep Escape to themselves
    event.preventDefault();
    event.stopPropagation();
  };
  for (const [name, handler] of /** @type {[string, (event: any) => void][]} any: each has an event of its own */ ([
    ["pointerdown", onOther],
    ["focusin", onFocus],
    ["keydown", onKey],
  ])) {
    document.addEventListener(name, handler, true);
    cleanUp.add(() => document.removeEventListener(name, handler, true));
  }
}
