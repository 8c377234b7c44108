// The map's buttons, and the keys that do the same and more.
import { h } from "shared/dom.js";

const STEP = 60; // pixels that an arrow key pans

/** `act` has a function for each thing that can be done; `tool()` is the one in hand, `can(what)` what makes sense now. */
export function toolbar(root, act, tool, can, search) {
  const buttons = [
    ["Select", "V", "Select, drag to another city, Shift and drag for a box", act.select, "", "select"],
    ["Add device", "D", "Click near a city: a device comes into its region", act.add, "", "add"],
    null,
    ["Delete", "Del", "Delete the selected devices", act.remove, "remove"],
    ["Undo", "Ctrl+Z", "Undo", act.undo, "undo"],
    ["Redo", "Ctrl+Y", "Redo", act.redo, "redo"],
    null,
    ["Fit", "F", "Show all devices", act.fit],
    ["+", "+", "Zoom in", act.closer],
    ["−", "-", "Zoom out", act.wider],
  ].map((one) => {
    if (!one) return null;
    const [name, key, title, run, needs, holds] = one;
    const element = h("button", {
      type: "button", title: `${title} (${key})`, "aria-label": name.length > 1 ? name : title, onclick: () => { run(); update(); } }, name);
    return { element, needs, holds };
  });

  function update() {
    for (const one of buttons) {
      if (!one) continue;
      one.element.disabled = Boolean(one.needs) && !can(one.needs);
      if (one.holds) one.element.setAttribute("aria-pressed", String(one.holds === tool()));
    }
    search.update();
  }

  const remove = () => { if (can("remove")) act.remove(); };
  const KEYS = {
    v: act.select, d: act.add, f: act.fit, 0: act.fit, "+": act.closer, "=": act.closer, "-": act.wider,
    delete: remove, backspace: remove, escape: act.drop, "/": () => { search.input.focus(); search.input.select(); },
    arrowleft: (far) => act.pan(far, 0), arrowright: (far) => act.pan(-far, 0), arrowup: (far) => act.pan(0, far), arrowdown: (far) => act.pan(0, -far),
  };
  root.addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT)$/.test(event.target.tagName) || event.altKey) return;
    const key = event.key.toLowerCase();
    let action = KEYS[key];
    if (event.ctrlKey || event.metaKey) action = { z: event.shiftKey ? act.redo : act.undo, y: act.redo, a: act.all }[key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(STEP * (event.shiftKey ? 3 : 1));
  });

  const element = h("div", { class: "dtfm-toolbar", role: "toolbar", "aria-label": "Map tools" },
    ...buttons.map((one) => one?.element ?? h("i")), h("span", { class: "dtfm-grow" }), search.element);
  return { element, update };
}
