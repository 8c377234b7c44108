// Keys that hold wherever the focus is in the lab, but in a field: 1 to 8 panes, Z undo, F whole window, ? words, Esc.

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
    if (!lab()?.contains(target) || event.defaultPrevented) return;
    if (key === "Escape" && leave()) event.stopPropagation();
    if (ctrlKey || metaKey || altKey || target.matches?.(TYPED_IN)) return;
    const tab = /^[1-9]$/.test(key) && lab().querySelectorAll(".dtfm-effect-head [role=tab]")[Number(key) - 1];
    if (tab) tab.click();
    else if (key === "z" || key === "Z") press("undo");
    else if (key === "f" || key === "F") toggleWindow();
    else if (key === "?") press("words");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  /** A focused element that goes would leave the focus to the notebook's cell, where a digit makes a heading of the cell. */
  function keepFocus({ target }) {
    setTimeout(() => { if (!target.isConnected && document.activeElement?.contains(lab())) lab()?.focus({ preventScroll: true }); });
  }
  const on = { keydown: keepToLab, focusout: keepFocus };
  let held = null;
  const later = setTimeout(() => {
    held = lab();
    if (!held) return;
    held.setAttribute("data-lm-suppress-shortcuts", "true"); // letters are no commands of the notebook
    held.tabIndex = -1; // a click on nothing in it gives it the focus
    for (const [name, handler] of Object.entries(on)) held.addEventListener(name, handler);
  }, 200);
  cleanUp.add(() => { clearTimeout(later); for (const [name, handler] of Object.entries(on)) held?.removeEventListener(name, handler); });
  document.addEventListener("keydown", onKey);
  cleanUp.add(() => document.removeEventListener("keydown", onKey));
}
