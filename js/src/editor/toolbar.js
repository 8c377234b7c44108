// Tools and commands, each with its key.
import { h } from "../shared/dom.js";

export const TOOLS = [
  { tool: "select", label: "Select", key: "V", hint: "Select and move" },
  { tool: "add", label: "Add device", key: "D", hint: "Click where a device should be" },
  { tool: "link", label: "Link", key: "L", hint: "Drag from one device to another, or from one region's box to another" },
];

/** `commands` is a list of {name, label, keys, hint, run, possible}; `null` in it is a gap. */
export function toolbar(use, commands) {
  const tools = TOOLS.map(({ tool, label, key, hint }) =>
    h("button", { type: "button", title: `${hint} (${key})`, "aria-keyshortcuts": key, onclick: () => use(tool) }, label));
  const buttons = commands.map((command) => command && h("button", { type: "button", title: `${command.hint} (${command.keys})`, onclick: command.run }, command.label));
  const element = h("div", { class: "dtfm-toolbar", role: "toolbar", "aria-label": "Topology tools" },
    ...tools, h("i"), ...buttons.map((button) => button ?? h("i")));
  return {
    element,
    update(tool) {
      tools.forEach((button, at) => button.setAttribute("aria-pressed", String(TOOLS[at].tool === tool)));
      commands.forEach((command, at) => { if (command) buttons[at].disabled = !command.possible(); });
    },
  };
}

/** Which tool or command a key press means, as a function to call, or null. */
export function meaning(event, use, command, nudge) {
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    if (key === "z") return command(event.shiftKey ? "redo" : "undo");
    if (key === "y") return command("redo");
    if (key === "a") return command("all");
    return null;
  }
  if (event.altKey) return null;
  const tool = TOOLS.find((one) => one.key.toLowerCase() === key);
  if (tool) return () => use(tool.tool);
  if (key === "g") return command(event.shiftKey ? "ungroup" : "group");
  if (key === "f") return command("fit");
  if (key === "delete" || key === "backspace") return command("delete");
  if (key === "escape") return command("none");
  const arrow = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] }[key];
  return arrow ? () => nudge(arrow, event.shiftKey) : null;
}
