// A wheel that is on its way down the notebook must not be caught by a picture it happens to cross: that says how to zoom.
import { h } from "./dom.js";

const TOLD_MS = 2500;

/**
 * Whether a wheel is meant for this picture: with Ctrl, where the focus is in it, or where nothing else could scroll.
 * @type {(event: WheelEvent, root: HTMLElement) => boolean}
 */
export function isMeant(event, root) {
  if (event.ctrlKey || event.metaKey || root.contains(document.activeElement)) return true;
  const lab = root.closest(".dtfm-lab");
  if (lab && getComputedStyle(lab).position === "fixed") return true; // over the whole window
  if (!root.querySelector(".dtfm-wheel")) {
    const told = h("div", { class: "dtfm-wheel", role: "status" }, "Click here first, or hold Ctrl, to zoom with the wheel");
    root.append(told);
    setTimeout(() => told.remove(), TOLD_MS);
  }
  return false;
}
