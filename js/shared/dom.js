// The little of the DOM that the canvases need.

/** An element: `on...` properties become listeners, `false` and `null` leave an attribute out. */
export function h(tag, properties = {}, ...children) {
  return dress(document.createElement(tag), properties, children);
}

/** The same in SVG. */
export function svg(tag, properties = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function dress(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** The frame of a canvas: focusable, named, and left alone by JupyterLab's one-letter shortcuts. */
export function frame(className, label, role = "group") {
  return h("div", {
    class: `dtfm ${className}`,
    tabindex: "0",
    role,
    "aria-label": label,
    "data-lm-suppress-shortcuts": "true",
  });
}

/** Collects what a view must undo when it goes; `render` returns `cleanUp.run`. */
export function cleanUps() {
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

/** Calls `handler` on change of any of the traits, until clean-up. */
export function onTraits(model, names, handler, cleanUp) {
  for (const name of names) {
    model.on(`change:${name}`, handler);
    cleanUp.add(() => model.off(`change:${name}`, handler));
  }
}

/** Runs `work` once in the next frame, however often it was asked for. */
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

/** Once for all that one message changes, before the next frame: for what has to be painted in that frame. */
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

export function onResize(element, handler, cleanUp) {
  const observer = new ResizeObserver(handler);
  observer.observe(element);
  cleanUp.add(() => observer.disconnect());
}

/** A copy of a binary trait or buffer as a typed array; the view it comes in need not be aligned. */
export function typed(view, ArrayType) {
  if (!view || !view.byteLength) return new ArrayType(0);
  const { buffer, byteOffset = 0, byteLength } = view;
  return new ArrayType(buffer ? buffer.slice(byteOffset, byteOffset + byteLength) : view.slice(0));
}

/**
 * Keeps `box` at the model's `height` in pixels; at 0 it takes all of the element that the view is in, and `root` has
 * the class dtfm-fills.
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

/** What the Tab key stops at in a part of the page, in its order. */
export function stopsIn(box) {
  return [...box.querySelectorAll(STOPS)].filter(
    (one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]"),
  );
}
