// The labels of pipes: each a slider of its pair's bandwidth and latency, or on a still map only these numbers.
import { linkDrag, linkLabel } from "shared/link_drag.js";
import { cleanUps, h } from "shared/dom.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Conditions, Model } from "shared/types.d.ts" */
/** @typedef {Conditions & { guess: boolean }} Told */
/** @typedef {{ element: HTMLElement, write: (conditions: Conditions, about?: string) => void, drag: { dragging: () => boolean }, gone: CleanUps & { run: () => void }, state?: string }} Label */
/** @typedef {{ read: (key: string) => Told, set: (key: string, conditions: Conditions, before: Conditions) => void, press: (key: string) => void, point: (key: string | null) => void }} Act */
/** @import { Camera, Pair, Pairs, Traits } from "../types.d.ts" */

/**
 * `act` is {read(key), set(key, conditions, before), press(key), point(key | null)}; `show` puts labels where they belong.
 * @type {(model: Model<Traits>, box: HTMLElement, still: boolean, act: Act, cleanUp: CleanUps) => { show: (pairs: Pairs, places: Map<string, { x: number, y: number }>, camera: Camera, look: (key: string) => { opacity: number, current: boolean }) => void, readonly held: string | null, readonly pointed: string | null, readonly dragging: boolean }}
 */
export function labels(model, box, still, act, cleanUp) {
  const layer = h("div", { class: "dtfm-map-tags" });
  box.append(layer);
  /** @type {Map<string, Label>} */
  const shown = new Map();
  /** @type {string | null} */
  let under = null; // the pointer
  cleanUp.add(() => {
    for (const { gone } of shown.values()) gone.run();
  });

  /** @type {(pair: Pair) => Label} */
  function make(pair) {
    const { key } = pair;
    const label = linkLabel(`${pair.a} – ${pair.b}`, still);
    const gone = cleanUps();
    /** @type {Told | null} */
    let before = null; // the numbers at the beginning of a drag: what differs from them is what it changes
    if (still) label.element.addEventListener("click", () => act.press(key));
    const drag = still
      ? { dragging: () => false }
      : linkDrag(
          label.element,
          model,
          {
            read: () => {
              before = act.read(key);
              return before;
            },
            set: (conditions) => act.set(key, conditions, there(before)),
            show: (conditions) => label.write(conditions, about(key)),
            press: () => act.press(key),
          },
          gone,
        );
    label.element.addEventListener("pointerenter", () => {
      under = key;
      act.point(key);
    });
    label.element.addEventListener("pointerleave", () => {
      under = null;
      act.point(null);
    });
    gone.add(() => {
      if (under === key) under = null;
    });
    layer.append(label.element);
    return { ...label, drag, gone };
  }

  /** @type {(key: string) => string} */
  const about = (key) => (act.read(key).guess ? "≈ " : "");

  return {
    /** `places` are {x, y} by key of pair; `look(key)` is {opacity, current}. */
    show(pairs, places, camera, look) {
      for (const [key, label] of shown) {
        if (places.has(key) && pairs.has(key)) continue;
        label.gone.run();
        label.element.remove();
        shown.delete(key);
      }
      for (const [key, { x, y }] of places) {
        if (!pairs.has(key)) continue;
        if (!shown.has(key)) shown.set(key, make(there(pairs.get(key))));
        const label = there(shown.get(key));
        if (!label.drag.dragging()) label.write(act.read(key), about(key));
        const { opacity, current } = look(key);
        const [px, py] = camera.toScreen(x, y);
        const state = `${px.toFixed(1)} ${py.toFixed(1)} ${opacity} ${current}`;
        if (state === label.state) continue;
        label.state = state;
        label.element.style.transform = `translate(${px.toFixed(1)}px, ${py.toFixed(1)}px) translate(-50%, -50%)`;
        label.element.style.opacity = String(opacity);
        label.element.setAttribute("aria-current", String(current));
      }
    },
    /** The pair whose label is dragged or has the focus: it keeps its label whatever the plan does. */
    get held() {
      for (const [key, { element, drag }] of shown)
        if (drag.dragging() || element === document.activeElement || /** @type {Document} */ (element.getRootNode()).activeElement === element) return key;
      return null;
    },
    get pointed() {
      return under;
    },
    get dragging() {
      return [...shown.values()].some(({ drag }) => drag.dragging());
    },
  };
}
