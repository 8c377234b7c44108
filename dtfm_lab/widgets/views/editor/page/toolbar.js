// Tools and commands, each with its key, and the field that searches.
import { h, svg, targetOf } from "shared/dom.js";
/** @import { CleanUps } from "shared/types.d.ts" */
/** @import { Command } from "../types.d.ts" */

export const TOOLS = [
  { tool: "select", label: "Select", key: "V", hint: "Select and move" },
  { tool: "add", label: "Add device", key: "D", hint: "Click where a device should be, or press Enter" },
  { tool: "link", label: "Add link", key: "L", hint: "Drag from one device to another, or from one region's box to another. Enter links two selected devices" },
];

/** @type {Record<string, string>} */
const ICONS = {
  add: "M8 3v10M3 8h10",
  link: "M5 11a2 2 0 1 1-2-2M11 5a2 2 0 1 1 2 2M5.2 9.6l5.6-4.2",
  undo: "M6 4 3 7l3 3M3 7h6a4 4 0 0 1 0 8",
  redo: "m10 4 3 3-3 3M13 7H7a4 4 0 0 0 0 8",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  edit: "m3 13 .7-2.8L10.5 3.4l2.1 2.1L5.800 12.300Z",
};

/** @type {(name: string) => SVGElement} */
function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/**
 * The tools. `commands` is a list of {name, label, keys, hint, run, possible, why}; those named in ICONS have a button of
 * their own, the others stand behind More, below `more`. `edit()` opens the form of what is selected.
 * @type {(use: (tool: string) => void, commands: Command[], edit: () => void, cleanUp: CleanUps, ...more: Node[]) => { element: HTMLElement, show: (wanted: boolean) => void, update: (tool: string) => void }}
 */
export function toolbar(use, commands, edit, cleanUp, ...more) {
  /** @type {(button: HTMLElement, hint: string) => void} */
  const said = (button, hint) => {
    button.title = hint;
    button.setAttribute("aria-label", hint);
  };
  const tools = TOOLS.map(({ tool, label, key, hint }) =>
    h(
      "button",
      { type: "button", title: `${hint} (${key})`, "aria-label": label, "aria-keyshortcuts": key, class: ICONS[tool] && "dtfm-icon", onclick: () => use(tool) },
      ICONS[tool] ? icon(tool) : label,
    ),
  );
  const buttons = new Map(
    commands.map((command) => [
      command,
      h(
        "button",
        {
          type: "button",
          "aria-label": command.label,
          class: ICONS[command.name] && "dtfm-icon",
          onclick: () => {
            if (command.possible()) command.run();
          },
        },
        ICONS[command.name] ? icon(command.name) : command.label,
      ),
    ]),
  );
  const [shown, rare] = [commands.filter(({ name }) => ICONS[name]), commands.filter(({ name }) => !ICONS[name])];
  const menu = h(
    "div",
    { class: "dtfm-menu", hidden: true },
    ...more,
    h("div", { class: "dtfm-actions" }, ...tools.filter((_, at) => !ICONS[TOOLS[at].tool]), ...rare.map((command) => buttons.get(command))),
  );
  const open = h("button", { type: "button", class: "dtfm-icon", title: "More", "aria-label": "More tools", "aria-expanded": "false" }, icon("more"));
  const form = h(
    "button",
    { type: "button", class: "dtfm-icon dtfm-edit", title: "Edit the selection (Enter)", "aria-label": "Edit", onclick: edit },
    icon("edit"),
  );
  /** @type {(wanted: boolean) => void} */
  const show = (wanted) => {
    menu.hidden = !wanted;
    open.setAttribute("aria-expanded", String(wanted));
  };
  open.addEventListener("click", () => show(Boolean(menu.hidden)));
  const element = h(
    "div",
    { class: "dtfm-tools", role: "toolbar", "aria-label": "Network tools" },
    ...tools.filter((_, at) => ICONS[TOOLS[at].tool]),
    h("i"),
    ...shown.map((command) => buttons.get(command)),
    h("i"),
    form,
    open,
    menu,
  );
  /** @type {(event: Event) => void} */
  const elsewhere = (event) => {
    if (!element.contains(targetOf(event))) show(false);
  };
  document.addEventListener("pointerdown", elsewhere);
  cleanUp.add(() => document.removeEventListener("pointerdown", elsewhere));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || menu.hidden) return;
    show(false);
    open.focus();
    event.stopPropagation();
  });
  return {
    element,
    show,
    update(tool) {
      tools.forEach((button, at) => button.setAttribute("aria-pressed", String(TOOLS[at].tool === tool)));
      for (const [command, button] of buttons) {
        const possible = command.possible();
        button.setAttribute("aria-disabled", String(!possible));
        said(button, possible ? `${command.hint} (${command.keys})` : `${command.label}: ${command.why}`);
      }
    },
  };
}

/**
 * `find(text)` marks what matches and returns how many do; `take()` selects them, and takes the focus back.
 * Escape empties the field first, and leaves it then.
 * @type {(find: (text: string) => number, take: () => void, leave: () => void) => { element: HTMLElement, focus: () => void, again: () => void, value: () => string }}
 */
export function searchField(find, take, leave) {
  const field = h("input", {
    type: "search",
    name: "search",
    placeholder: "Search ( / )",
    "aria-label": "Search devices, regions and GPUs",
    autocomplete: "off",
    spellcheck: "false",
  });
  const count = h("span", { class: "dtfm-count", "aria-live": "polite" });
  function look() {
    const found = find(field.value);
    count.textContent = field.value.trim() ? (found === 1 ? "1 device" : `${found || "no"} devices`) : "";
  }
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      event.preventDefault();
      take();
    }
    if (event.key !== "Escape") return;
    event.preventDefault();
    const empty = field.value === "";
    field.value = "";
    look();
    if (empty) leave();
  });
  return {
    element: h("span", { class: "dtfm-search" }, count, field),
    focus: () => {
      field.focus();
      field.select();
    },
    again: look,
    value: () => field.value,
  };
}

/**
 * Which tool or command a key press means, as a function to call, or null.
 * @type {(event: KeyboardEvent, use: (tool: string) => void, command: (name: string) => () => void, nudge: (by: [number, number], far: boolean) => void) => (() => void) | null}
 */
export function meaning(event, use, command, nudge) {
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    const name = { z: event.shiftKey ? "redo" : "undo", y: "redo", a: "all", d: "duplicate", f: "search" }[key];
    return name ? command(name) : null;
  }
  if (event.altKey) return null;
  const tool = TOOLS.find((one) => one.key.toLowerCase() === key);
  if (tool) return () => use(tool.tool);
  if (key === "g") return command(event.shiftKey ? "ungroup" : "group");
  if (key === "n") return command(event.shiftKey ? "previous" : "next");
  const name = { f: "fit", "/": "search", delete: "delete", backspace: "delete", escape: "none", enter: "enter" }[key];
  if (name) return command(name);
  /** @type {[number, number] | undefined} */
  const arrow = /** @type {Record<string, [number, number]>} */ ({ arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] })[key];
  return arrow ? () => nudge(arrow, event.shiftKey) : null;
}
