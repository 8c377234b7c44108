// A button to kill, pause or slow a device of a run. Its menu has the devices, the chosen one's state and the actions.
import { cleanUps, frame, h, oncePerFrame, onTraits } from "shared/dom.js";
import { view } from "shared/view.js";
import { faultMenu } from "./page/menu.js";
/** @import { Render } from "shared/types.d.ts" */
/** @import { Traits } from "./types.d.ts" */

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const whom = h("span");
  const button = h("button", { type: "button", class: "dtfm-disturb", "aria-haspopup": "menu", onclick: () => menu.toggle() }, "Disturb", whom);
  const root = frame("dtfm-devices", "Disturb a device");
  root.removeAttribute("tabindex"); // its button takes the focus
  root.append(button);
  el.append(root);
  const menu = faultMenu(root, button, (device, action) => model.send({ kind: "act", device, do: action }), choose, cleanUp);

  const devices = () => model.get("devices");
  const chosen = () => devices().find(({ name }) => model.get("selected").includes(name)) ?? devices()[0];

  /** @type {(name: string) => void} */
  function choose(name) {
    model.set("selected", [name]);
    model.save_changes();
    showNow();
  }

  function showNow() {
    const device = chosen(),
      running = model.get("running");
    const why = devices().length ? model.get("hint") : "No plan yet: plan and run it, then kill, pause or slow a device here";
    const picked = device && model.get("selected").includes(device.name);
    whom.textContent = picked && running ? ` ${device.name}` : "";
    button.disabled = !running || !device;
    button.title = button.disabled ? why : "Kill, pause or slow a device while it runs";
    if (button.disabled) menu.close();
    if (!device) return;
    const states = model.get("states"),
      state = states[device.name] ?? {};
    const may = new Set(state.may ?? []);
    menu.fill({
      devices: devices().map((one) => ({ ...one, condition: states[one.name]?.condition ?? "" })),
      device,
      state,
      actions: model.get("actions").map((action) => ({ ...action, possible: may.has(action.do) })),
      hint: may.size ? "" : model.get("hint"),
    });
    root.dataset.device = device.name;
  }
  const show = oncePerFrame(showNow, cleanUp);

  onTraits(model, ["devices", "selected", "running", "states", "hint", "actions"], show, cleanUp);
  showNow();
  return cleanUp.run;
}

export default view(render);
