// Tools and commands, each with its key, and the field that searches.
import { h } from "shared/dom.js";

export const TOOLS = [
  { tool: "select", label: "Select", key: "V", hint: "Select and move" },
  { tool: "add", label: "Add device", key: "D", hint: "Click where a device should be, or press Enter" },
  { tool: "link", label: "Link", key: "L", hint: "Drag from one device to another, or from one region's box to another; Enter links two selected" },
];

/** `commands` is a list of {name, label, keys, hint, run, possible}; `null` in it is a gap. */
export function toolbar(use, commands, ...more) {
  const tools = TOOLS.map(({ tool, label, key, hint }) =>
    h("button", { type: "button", title: `${hint} (${key})`, "aria-keyshortcuts": key, onclick: () => use(tool) }, label));
  const buttons = commands.map((command) => command && h("button", { type: "button", title: `${command.hint} (${command.keys})`, onclick: command.run }, command.label));
  const element = h("div", { class: "dtfm-toolbar", role: "toolbar", "aria-label": "Topology tools" },
    ...tools, h("i"), ...buttons.map((button) => button ?? h("i")), h("span", { class: "dtfm-grow" }), ...more);
  return {
    element,
    update(tool) {
      tools.forEach((button, at) => button.setAttribute("aria-pressed", String(TOOLS[at].tool === tool)));
      commands.forEach((command, at) => { if (command) buttons[at].disabled = !command.possible(); });
    },
  };
}

/**
 * `find(text)` marks what matches and returns how many do; `take()` selects them, and takes the focus back.
 * Escape empties the field first, and leaves it then.
 */
export function searchField(find, take, leave) {
  const field = h("input", { type: "search", name: "search", placeholder: "Search ( / )", "aria-label": "Search devices, regions and GPUs", autocomplete: "off", spellcheck: "false" });
  const count = h("span", { class: "dtfm-count", "aria-live": "polite" });
  function look() {
    const found = find(field.value);
    count.textContent = field.value.trim() ? (found === 1 ? "1 device" : `${found || "no"} devices`) : "";
  }
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") { event.preventDefault(); take(); }
    if (event.key !== "Escape") return;
    event.preventDefault();
    const empty = field.value === "";
    field.value = "";
    look();
    if (empty) leave();
  });
  return { element: h("span", { class: "dtfm-search" }, count, field), focus: () => { field.focus(); field.select(); }, again: look, value: () => field.value };
}

/** Which tool or command a key press means, as a function to call, or null. */
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
  const arrow = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] }[key];
  return arrow ? () => nudge(arrow, event.shiftKey) : null;
}
