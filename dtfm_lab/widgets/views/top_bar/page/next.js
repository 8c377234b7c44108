// The one next step of the first minute, in a row below the headline, until a person closes it.
import { pulse } from "shared/bus.js";
import { h } from "shared/dom.js";
import { remembers } from "shared/memory.js";
/** @import { Model } from "shared/types.d.ts" */
/** @import { Traits } from "../types.d.ts" */

const [PULL, DONE] = ["step-pull", "done"];

/**
 * The row, and `show`, which writes the step of now into it. On a still page there is none, and while the kernel is
 * `gone` it does nothing.
 * @type {(model: Model<Traits>, el: HTMLElement, press: (name: string) => void) => { element: HTMLElement, show: (gone: boolean) => void }}
 */
export function nextStep(model, el, press) {
  const element = h("div", { class: "dtfm-next", role: "group", "aria-label": "First minute", hidden: true });
  const minute = remembers("first-minute");
  let closed = false;
  let shown = ""; // the step that is in the row
  const close = h("button", { type: "button", class: "dtfm-plain", "aria-label": "Close", title: "Never show these steps again", onclick: end }, "×");
  const focusable = () => [...element.querySelectorAll("button")];

  /** @type {(gone: boolean) => void} */
  function show(gone) {
    const { name = "", words = "", buttons = [] } = model.get("step");
    element.hidden = model.get("still") || (gone && !shown) || closed || (minute.has() && name !== DONE);
    element.inert = gone; // it stays where it is, so that nothing on the screen moves
    if (element.hidden) return;
    if (name === DONE) minute.set(); // nobody is led twice
    const step = JSON.stringify([words, buttons]);
    if (step === shown) return; // else Tab would go back to the first button whenever the lab is drawn
    shown = step;
    const at = focusable().indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    element.replaceChildren(
      h("span", { class: "dtfm-next-words", role: "status" }, words),
      ...buttons.map((one) => h("button", { type: "button", class: "dtfm-next-step", onclick: () => take(one.name) }, one.label)),
      h("span", { class: "dtfm-grow" }),
      ...(words ? [close] : []), // of an empty row there is nothing to close
    );
    element.dataset.step = name;
    if (at >= 0) (focusable()[at] ?? focusable()[0])?.focus({ preventScroll: true });
  }

  /** @type {(name: string) => void} */
  function take(name) {
    press(name);
    if (name === PULL) pulse(el);
  }

  function end() {
    closed = true;
    minute.set();
    element.hidden = true;
    window.dispatchEvent(new Event("resize"));
  }

  return { element, show };
}
