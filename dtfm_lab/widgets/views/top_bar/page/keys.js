// Keys that hold wherever the focus is in the lab, but in a field: 1 to 9 and 0 panes, Z undo, F whole window, ? words, Esc.
import { stopsIn } from "shared/dom.js";
import { keepLetters } from "shared/view.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Listening } from "shared/types.d.ts" */

const TYPED_IN = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

/** @typedef {HTMLElement & { disabled?: boolean }} Stop */

/**
 * A notebook takes arrows for its cells, and would keep sliders and menus from moving.
 * @type {(event: KeyboardEvent) => void}
 */
function keepToLab(event) {
  if (MOVES.has(event.key)) event.stopPropagation();
}

/** @type {(el: HTMLElement, act: { press: (name: string) => void, toggleWindow: () => void, leave: () => boolean }, cleanUp: CleanUps) => void} */
export function labKeys(el, { press, toggleWindow, leave }, cleanUp) {
  const lab = () => el.closest(".dtfm-lab");
  /** @type {(event: KeyboardEvent) => void} */
  function onKey(event) {
    const { target, key, ctrlKey, metaKey, altKey } = event;
    if (!lab()?.contains(document.activeElement) || event.defaultPrevented) return; // not the target: it may have gone
    if (key === "Escape" && leave()) event.stopPropagation();
    if (ctrlKey || metaKey || altKey || /** @type {Element} */ (target).matches?.(TYPED_IN)) return;
    const tab = /^[0-9]$/.test(key) && there(lab()).querySelectorAll(".dtfm-effect-head .dtfm-tab")[(Number(key) + 9) % 10];
    if (tab) tab.click();
    else if (key === "z" || key === "Z") press("undo");
    else if (key === "f" || key === "F") toggleWindow();
    else if (key === "?") press("words");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  /** @type {(Stop | null)[]} */
  let [last, stopped] = [null, null]; // what had the focus in the lab, and what lost it because it was disabled
  /** @type {(event: FocusEvent) => void} */
  function focused(event) {
    [last, stopped] = [/** @type {Stop} */ (event.target), null];
    keepLetters(event);
  }
  /** @type {(one: Stop) => boolean} */
  const isThere = (one) => one.isConnected && !one.disabled && one.checkVisibility();
  /**
   * A focused button that goes, hides or is disabled, as Plan while it searches, would leave the focus to the page, where a
   * digit makes a heading of the notebook's cell: what follows in the lab has it then, but no field, which would take keys.
   * A button that was disabled for a moment has it again.
   */
  function keepFocus() {
    if (!last || (isThere(last) && last !== stopped) || !document.activeElement?.contains(lab())) return;
    /** @type {(one: HTMLElement) => boolean} */
    const follows = (one) => Boolean(there(last).compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING) && !one.matches(TYPED_IN);
    const next = isThere(last) ? last : last.isConnected && stopsIn(there(lab())).find(follows);
    (next || there(lab())).focus({ preventScroll: true });
  }
  /** @type {(event: FocusEvent) => void} */
  function left({ target }) {
    if (/** @type {Stop} */ (target).disabled) stopped = /** @type {Stop} */ (target); // by the time it is looked at, it may be enabled again
    setTimeout(keepFocus);
  }
  /** @type {Listening} */
  const on = { keydown: keepToLab, focusin: focused, focusout: left };
  /** @type {HTMLElement | null} */
  let held = null;
  const later = setTimeout(() => {
    held = lab();
    if (!held) return;
    held.tabIndex = -1; // a click on nothing in it gives it the focus
    for (const [name, handler] of Object.entries(on)) held.addEventListener(name, handler);
  }, 200);
  cleanUp.add(() => {
    clearTimeout(later);
    for (const [name, handler] of Object.entries(on)) held?.removeEventListener(name, handler);
  });
  document.addEventListener("keydown", keepFocus, true);
  cleanUp.add(() => document.removeEventListener("keydown", keepFocus, true));
  document.addEventListener("keydown", onKey);
  cleanUp.add(() => document.removeEventListener("keydown", onKey));
}
