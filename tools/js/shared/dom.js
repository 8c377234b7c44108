// The little of the DOM that the canvases need.
/** @import { Bytes, Child, CleanUps, Model, Properties } from "./types.d.ts" */

/**
 * An element: `on...` properties become listeners, `false` and `null` leave an attribute out.
 * @type {<K extends keyof HTMLElementTagNameMap>(tag: K, properties?: Properties<HTMLElementTagNameMap[K]>, ...children: Child[]) => HTMLElementTagNameMap[K]}
 */
export function h(tag, properties = {}, ...children) {
  return dress(document.createElement(tag), properties, children);
}

/**
 * The same in SVG.
 * @type {<K extends keyof SVGElementTagNameMap>(tag: K, properties?: Properties<SVGElementTagNameMap[K]>, ...children: Child[]) => SVGElementTagNameMap[K]}
 */
export function svg(tag, properties = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

/** @type {<E extends Element>(element: E, properties: Properties<E>, children: Child[]) => E} */
function dress(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * The frame of a canvas: focusable, named, and left alone by JupyterLab's one-letter shortcuts.
 * @type {(className: string, label: string, role?: string) => HTMLDivElement}
 */
export function frame(className, label, role = "group") {
  return h("div", {
    class: `dtfm ${className}`,
    tabindex: "0",
    role,
    "aria-label": label,
    "data-lm-suppress-shortcuts": "true",
  });
}

/**
 * Collects what a view must undo when it goes; `render` returns `cleanUp.run`.
 * @type {() => CleanUps & { run: () => void }}
 */
export function cleanUps() {
  /** @type {(() => void)[]} */
  const steps = [];
  return {
    add: (step) => steps.push(step),
    run: () =>
      steps
        .splice(0)
        .reverse()
        .forEach((step) => step()),
  };
}

/**
 * Calls `handler` on change of any of the traits, until clean-up.
 * @type {<T>(model: Model<T>, names: readonly (keyof T & string)[], handler: () => void, cleanUp: CleanUps) => void}
 */
export function onTraits(model, names, handler, cleanUp) {
  for (const name of names) {
    model.on(`change:${name}`, handler);
    cleanUp.add(() => model.off(`change:${name}`, handler));
  }
}

/**
 * Runs `work` once in the next frame, however often it was asked for.
 * @type {(work: () => void, cleanUp: CleanUps) => () => void}
 */
export function oncePerFrame(work, cleanUp) {
  let pending = 0;
  cleanUp.add(() => cancelAnimationFrame(pending));
  return () => {
    if (!pending)
      pending = requestAnimationFrame(() => {
        pending = 0;
        work();
      });
  };
}

/**
 * Once for all that one message changes, before the next frame: for what has to be painted in that frame.
 * @type {(work: () => void, cleanUp: CleanUps) => () => void}
 */
export function oncePerMessage(work, cleanUp) {
  let [pending, ended] = [false, false];
  cleanUp.add(() => {
    ended = true;
  });
  return () => {
    if (!pending)
      queueMicrotask(() => {
        pending = false;
        if (!ended) work();
      });
    pending = true;
  };
}

/** @type {(element: Element, handler: () => void, cleanUp: CleanUps) => void} */
export function onResize(element, handler, cleanUp) {
  const observer = new ResizeObserver(handler);
  observer.observe(element);
  cleanUp.add(() => observer.disconnect());
}

/**
 * A copy of a binary trait or buffer as a typed array; the view it comes in need not be aligned.
 * @type {<A>(view: Bytes, ArrayType: { new (length: number): A, new (buffer: ArrayBuffer): A }) => A}
 */
export function typed(view, ArrayType) {
  if (!view || !view.byteLength) return new ArrayType(0);
  if (!("buffer" in view)) return new ArrayType(view.slice(0));
  const { buffer, byteOffset, byteLength } = view;
  return new ArrayType(/** @type {ArrayBuffer} */ (buffer).slice(byteOffset, byteOffset + byteLength));
}

/**
 * Keeps `box` at the model's `height` in pixels; at 0 it takes all of the element that the view is in, and `root` has
 * the class dtfm-fills.
 * @type {<T extends { height: number }>(model: Model<T>, el: HTMLElement, root: HTMLElement, box: HTMLElement, cleanUp: CleanUps) => void}
 */
export function sized(model, el, root, box, cleanUp) {
  const resize = () => {
    const height = model.get("height");
    for (const one of [el, root]) one.classList.toggle("dtfm-fills", height === 0);
    box.style.height = height ? `${height}px` : "";
  };
  onTraits(model, ["height"], resize, cleanUp);
  resize();
}

const STOPS = "button, [href], input:not([type=hidden]), select, textarea, summary, [tabindex]";

/**
 * What the Tab key stops at in a part of the page, in its order.
 * @type {(box: ParentNode) => HTMLElement[]}
 */
export function stopsIn(box) {
  const all = /** @type {(HTMLElement & { disabled?: boolean })[]} */ ([...box.querySelectorAll(STOPS)]);
  return all.filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]"));
}

/**
 * The element in `box` that has the focus, or null.
 * @type {(box: Element) => HTMLElement | null}
 */
export const focusedIn = (box) => (box.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null);

/**
 * What an event happened to: an element, for the events that views listen to.
 * @type {(event: Event) => HTMLElement}
 */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/**
 * Sets several traits and sends them.
 * @type {<T>(model: Model<T>, values: Partial<T>) => void}
 */
export function setTraits(model, values) {
  for (const name of /** @type {(keyof typeof values & string)[]} */ (Object.keys(values))) model.set(name, /** @type {any} */ (values[name])); // any: it is there, as its name is
  model.save_changes();
}
