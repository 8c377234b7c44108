// The row of icons over the picture, and the keys that do the same and more.
import { h, svg, targetOf } from "shared/dom.js";

const PAN = 60; // pixels of an arrow key with Shift
/** @type {Record<string, string>} */
/** @typedef {{ drop: () => void, add: () => void, remove: () => void, fit: () => void, closer: () => void, wider: () => void, undo: () => void, redo: () => void, all: () => void, back: () => void, enter: () => void, toggle: () => void, pan: (dx: number, dy: number) => void, step: (dx: number, dy: number) => void }} Act */

/** @type {Record<string, string>} */
const ICONS = {
  add: "M8 2.5v11M2.5 8h11",
  remove: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9",
  undo: "M6 3L3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  closer: "M7 4v6M4 7h6M11 11l3 3M12 7A5 5 0 1 1 2 7a5 5 0 0 1 10 0",
  wider: "M4 7h6M11 11l3 3M12 7A5 5 0 1 1 2 7a5 5 0 0 1 10 0",
};

/** @type {(name: string) => SVGElement} */
const icon = (name) =>
  svg(
    "svg",
    { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    svg("path", { d: ICONS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round" }),
  );

const EDITS = new Set(["add", "remove", "undo", "redo"]);

/**
 * `act` has a function for each thing that can be done; `tool()` is the one in hand, `can(what)` whether it makes sense
 * now. On a `still` map nothing is edited.
 * @type {(root: HTMLElement, act: Act, tool: () => string, can: (what: string) => boolean, search: { element: HTMLElement, input: HTMLInputElement, update: () => void }, gpus: HTMLElement, still: boolean) => { element: HTMLElement, update: () => void }}
 */
export function toolbar(root, act, tool, can, search, gpus, still) {
  const buttons = /** @type {[keyof Act, string, string, string, string?][]} */ ([
    ["add", "Add device", "D", "then click near a city: a device comes into its region"],
    ["remove", "Delete", "Del", "the selected devices", "select what should go first"],
    ["undo", "Undo", "Ctrl+Z", "", "nothing to undo yet"],
    ["redo", "Redo", "Ctrl+Y", "", "nothing was undone"],
    ["wider", "Zoom out", "−", ""],
    ["closer", "Zoom in", "+", ""],
    ["fit", "Fit", "F", "show everything"],
  ])
    .filter(([name]) => !still || !EDITS.has(name))
    .map(([name, label, key, does, why]) => ({
      name,
      why,
      title: [`${label} (${key})`, does].filter(Boolean).join(": "),
      element: h(
        "button",
        {
          type: "button",
          "aria-label": label,
          onclick: ({ currentTarget }) => {
            const run = /** @type {() => void} */ (act[name]);
            if (!currentTarget.hasAttribute("aria-disabled")) run();
            update();
          },
        },
        icon(name),
      ),
    }));

  function update() {
    for (const { name, why, title, element } of buttons) {
      const off = why && !can(name);
      element.toggleAttribute("aria-disabled", Boolean(off));
      if (off) element.setAttribute("aria-disabled", "true");
      element.title = off ? `${title}\nNot now: ${why}` : title;
      if (name === "add") element.setAttribute("aria-pressed", String(tool() === "add"));
    }
    gpus.hidden = tool() !== "add";
    search.update();
  }

  const remove = () => {
    if (can("remove")) act.remove();
  };
  /** @type {Record<string, () => void>} */
  const KEYS = {
    ...(still ? {} : { v: act.drop, d: act.add, delete: remove, backspace: remove }),
    f: act.fit,
    0: act.fit,
    "+": act.closer,
    "=": act.closer,
    "-": act.wider,
    escape: act.back,
    enter: act.enter,
    " ": act.toggle,
    "/": () => {
      search.input.focus();
      search.input.select();
    },
  };
  /** @type {Record<string, [number, number]>} */
  const ARROWS = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] };
  root.addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT|BUTTON)$/.test(targetOf(event).tagName) || event.target !== root || event.altKey) return;
    const key = event.key.toLowerCase();
    const arrow = ARROWS[key];
    /** @type {(() => void) | undefined} */
    let action = KEYS[key];
    if (arrow) action = () => (event.shiftKey ? act.pan(-arrow[0] * PAN, -arrow[1] * PAN) : act.step(...arrow));
    if (event.ctrlKey || event.metaKey)
      action = /** @type {Record<string, () => void>} */ ({ ...(still ? {} : { z: event.shiftKey ? act.redo : act.undo, y: act.redo }), a: act.all })[key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
    update();
  });

  const element = h(
    "div",
    { class: "dtfm-map-float dtfm-map-icons", role: "toolbar", "aria-label": "Map tools" },
    search.element,
    gpus,
    ...buttons.map(({ element: button }) => button),
  );
  return { element, update };
}
