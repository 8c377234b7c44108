// Keys that hold wherever the focus is in the lab, but in a field: 1 to 9 and 0 panes, Z undo, F whole window, ? words, Esc.
import { stopsIn } from "shared/dom.js";
import { keepLetters } from "shared/view.js";

const TYPED_IN = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";
const MOVES = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

/** A notebook takes arrows for its cells, and would keep sliders and menus from moving. */
function keepToLab(event) {
  if (MOVES.has(event.key)) event.stopPropagation();
}

export function labKeys(el, { press, toggleWindow, leave }, cleanUp) {
  const lab = () => el.closest(".dtfm-lab");
  function onKey(event) {
    const { target, key, ctrlKey, metaKey, altKey } = event;
    if (!lab()?.contains(document.activeElement) || event.defaultPrevented) return; // not the target: it may have gone
    if (key === "Escape" && leave()) event.stopPropagation();
    if (ctrlKey || metaKey || altKey || target.matches?.(TYPED_IN)) return;
    const tab = /^[0-9]$/.test(key) && lab().querySelectorAll(".dtfm-effect-head [role=tab]")[(Number(key) + 9) % 10];
    if (tab) tab.click();
    else if (key === "z" || key === "Z") press("undo");
    else if (key === "f" || key === "F") toggleWindow();
    else if (key === "?") press("words");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  let last = null,
    stopped = null; // what had the focus in the lab, and what lost it because it was disabled
  function focused(event) {
    [last, stopped] = [event.target, null];
    keepLetters(event);
  }
  const isThere = (one) => one.isConnected && !one.disabled && one.checkVisibility();
  /**
   * A focused button that goes, hides or is disabled, as Plan while it searches, would leave the focus to the page, where a
   * digit makes a heading of the notebook's cell: what follows in the lab has it then, but no field, which would take keys.
   * A button that was disabled for a moment has it again.
   */
  function keepFocus() {
    if (!last || (isThere(last) && last !== stopped) || !document.activeElement?.contains(lab())) return;
    const follows = (one) => last.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING && !one.matches(TYPED_IN);
    const next = isThere(last) ? last : last.isConnected && stopsIn(lab()).find(follows);
    (next || lab()).focus({ preventScroll: true });
  }
  function left({ target }) {
    if (target.disabled) stopped = target; // by the time it is looked at, it may be enabled again
    setTimeout(keepFocus);
  }
  const on = { keydown: keepToLab, focusin: focused, focusout: left };
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
