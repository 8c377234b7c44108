// A dialog that lies over the lab it is part of: the rest cannot be reached while it is open. Escape and the veil close it.
import { h, stopsIn } from "./dom.js";
/** @import { Child } from "./types.d.ts" */

let made = 0;

/**
 * The element is moved into the lab (`.dtfm-lab`) around `el` when it opens; alone in a cell it opens where it is.
 * Returns {box, open(focus), close(), remove(), isOpen()}. `onClose` is called at every end, however it came about.
 * @type {(el: HTMLElement, options: { className: string, label: string, onClose?: () => void }, ...children: Child[]) => { box: HTMLElement, card: HTMLElement, open: (focus?: HTMLElement) => void, close: () => void, isOpen: () => boolean, remove: () => void }}
 */
export function dialog(el, { className, label, onClose = () => {} }, ...children) {
  const card = h("div", { class: "dtfm-dialog-card", role: "dialog", "aria-modal": "true", "aria-label": label, tabindex: "-1" }, ...children);
  const box = h("div", { class: `dtfm dtfm-dialog ${className}`, id: `dtfm-dialog-${++made}`, "data-lm-suppress-shortcuts": "true", hidden: true }, card);
  el.append(box);
  let /** @type {HTMLElement[]} */ covered = [],
    /** @type {HTMLElement | null} */ before = null;

  /** @type {(focus?: HTMLElement) => void} */
  function open(focus = card) {
    if (!box.hidden) return;
    const lab = el.closest(".dtfm-lab");
    before = /** @type {HTMLElement} */ (document.activeElement);
    box.hidden = false;
    box.classList.toggle("dtfm-veil", Boolean(lab));
    if (lab) {
      lab.append(box);
      covered = /** @type {HTMLElement[]} */ ([...lab.children]).filter((child) => child !== box && !child.inert);
      for (const child of covered) child.inert = true;
    }
    focus.focus({ preventScroll: true });
  }

  function close() {
    if (box.hidden) return;
    box.hidden = true;
    for (const child of covered) child.inert = false;
    covered = [];
    if (before?.isConnected) before.focus({ preventScroll: true });
    onClose();
  }

  /** @type {(event: KeyboardEvent) => void} */
  function onKey(event) {
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
    if (event.key !== "Tab") return;
    const stops = stopsIn(card);
    const [first, last] = [stops[0], stops.at(-1)];
    const leaves = event.shiftKey ? document.activeElement === first || document.activeElement === card : document.activeElement === last;
    if (leaves && first) {
      event.preventDefault();
      (event.shiftKey ? last : first).focus();
    }
  }

  box.addEventListener("keydown", onKey);
  box.addEventListener("pointerdown", (event) => {
    if (event.target === box) close();
  });
  return {
    box,
    card,
    open,
    close,
    isOpen: () => !box.hidden,
    remove: () => {
      for (const child of covered) child.inert = false;
      box.remove();
    },
  };
}
