// Names for screen readers, where the notebook's own controls have none: of sliders' handles, and of fields that are
// labelled by a tooltip only. Headers of what folds, which only a click opens there, are buttons for keys, too.
import { there } from "shared/there.js";
/** @import { CleanUps } from "shared/types.d.ts" */

const REST_MS = 500;
const NONE = / \(0\)$/; // how many files an upload holds, which the lab takes at once

/** @type {(lab: HTMLElement) => void} */
function nameAll(lab) {
  for (const handle of lab.querySelectorAll(".noUi-handle:not([aria-label])")) {
    const widget = handle.closest(".widget-inline-hbox, .widget-inline-vbox");
    const label = widget?.querySelector(":scope > .widget-label")?.textContent;
    handle.setAttribute("aria-label", label || widget?.title || "Value");
  }
  for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (
    lab.querySelectorAll(".jupyter-widgets select:not([aria-label]), .jupyter-widgets input:not([aria-label])")
  )) {
    const widget = field.closest(".jupyter-widgets");
    const said = [...(field.labels ?? [])].some((label) => label.textContent.trim());
    const name = field.title || widget?.title || field.placeholder;
    if (!said && name) field.setAttribute("aria-label", name);
  }
  for (const upload of lab.querySelectorAll(".widget-upload"))
    for (const text of upload.childNodes) if (text instanceof Text && NONE.test(text.data)) text.data = text.data.replace(NONE, "");
  for (const header of lab.querySelectorAll(".jupyter-widget-Collapse-header:not([role])")) {
    header.setAttribute("role", "button");
    header.tabIndex = 0;
    header.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      header.click();
    });
  }
}

/** @type {(el: HTMLElement, cleanUp: CleanUps) => void} */
export function nameControls(el, cleanUp) {
  /** @type {HTMLElement | null} */
  let lab = null,
    /** @type {ReturnType<typeof setTimeout> | 0} */ waiting = 0;
  const observer = new MutationObserver(() => {
    if (!waiting)
      waiting = setTimeout(() => {
        waiting = 0;
        nameAll(there(lab));
      }, REST_MS);
  });
  const later = setTimeout(() => {
    lab = el.closest(".dtfm-lab");
    if (!lab) return;
    nameAll(lab);
    observer.observe(lab, { childList: true, subtree: true });
  }, 200); // the lab comes into the page after its children
  cleanUp.add(() => {
    clearTimeout(later);
    clearTimeout(waiting);
    observer.disconnect();
  });
}
