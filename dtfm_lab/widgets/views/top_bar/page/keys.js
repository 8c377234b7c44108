// Keys that hold wherever the focus is in the lab, but in a field: 1 to 6 panes, Z undo, F whole window, ? words, Esc.

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
  const later = setTimeout(() => {
    lab()?.setAttribute("data-lm-suppress-shortcuts", "true"); // letters are no commands of the notebook
    lab()?.addEventListener("keydown", keepToLab);
  }, 200);
  cleanUp.add(() => { clearTimeout(later); lab()?.removeEventListener("keydown", keepToLab); });
  document.addEventListener("keydown", onKey);
  cleanUp.add(() => document.removeEventListener("keydown", onKey));
}
