// The lab over the whole window. A notebook's cell may be clipped and moved by its surroundings, so the lab goes to the
// browser's top layer, as a popover does. Tab goes round in it: what it covers cannot be seen.
import { stopsIn } from "shared/dom.js";
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */

/** @type {(el: Element) => HTMLElement | null} */
const labOf = (el) => el.closest(".dtfm-lab");

/**
 * Scrolls a lab that has just come out of a cell into view, as the cell that follows is what the notebook shows. Only a
 * lab whose beginning is in view is looked at.
 * @type {(el: Element) => void}
 */
export function bringIntoView(el) {
  const lab = labOf(el),
    scroller = lab?.closest(".jp-WindowedPanel-outer");
  if (!lab || !scroller || lab.matches(":popover-open")) return;
  const [box, seen] = [lab.getBoundingClientRect(), scroller.getBoundingClientRect()];
  if (box.top < seen.top || box.top > seen.bottom) return;
  scroller.scrollTop += Math.max(0, Math.min(box.bottom - seen.bottom + 8, box.top - seen.top));
}

/** @type {(el: Element) => void} */
export function toggleWindow(el) {
  const lab = labOf(el);
  if (!lab?.showPopover) return;
  if (lab.matches(":popover-open")) return lab.hidePopover();
  lab.setAttribute("popover", "manual");
  lab.showPopover();
  window.dispatchEvent(new Event("resize"));
}

/**
 * Leaves the whole window; false where the lab was not in it.
 * @type {(el: Element) => boolean}
 */
export function leaveWindow(el) {
  const lab = labOf(el),
    isWhole = Boolean(lab?.matches(":popover-open"));
  if (isWhole) there(lab).hidePopover();
  return isWhole;
}

/**
 * `handler(isWhole)` when the lab enters or leaves the whole window.
 * @type {(el: HTMLElement, handler: (isWhole: boolean) => void, cleanUp: CleanUps) => void}
 */
export function onWindow(el, handler, cleanUp) {
  const later = setTimeout(() => {
    const lab = labOf(el);
    if (!lab) return;
    /** @type {(event: ToggleEvent) => void} */
    const listen = (event) => {
      if (event.target !== lab) return;
      lab.classList.toggle("dtfm-window", event.newState === "open");
      if (event.newState === "closed") lab.removeAttribute("popover");
      handler(event.newState === "open");
    };
    lab.addEventListener("toggle", listen);
    cleanUp.add(() => lab.removeEventListener("toggle", listen));
    let step = 0; // of the Tab key that is being pressed
    /** @type {(event: KeyboardEvent) => void} */
    const onTab = ({ key, shiftKey }) => {
      if (key !== "Tab") return;
      step = shiftKey ? -1 : 1;
      setTimeout(() => {
        step = 0;
      });
    };
    /** @type {(event: FocusEvent) => void} */
    const onFocus = ({ target }) => {
      if (step && lab.matches(":popover-open") && !lab.contains(/** @type {Node | null} */ (target)))
        stopsIn(lab)
          .at(step > 0 ? 0 : -1)
          ?.focus();
    };
    for (const [name, handler] of /** @type {[string, (event: any) => void][]} any: each has an event of its own */ ([
      ["keydown", onTab],
      ["focusin", onFocus],
    ])) {
      document.addEventListener(name, handler, true);
      cleanUp.add(() => document.removeEventListener(name, handler, true));
    }
  }, 200); // the lab comes into the page after its children
  cleanUp.add(() => clearTimeout(later));
}
