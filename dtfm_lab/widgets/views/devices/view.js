// The devices that run, a row a pipeline: what each does now, and a menu at each to disturb it.
import { cleanUps, frame, h, oncePerFrame, onTraits } from "shared/dom.js";
import { roving } from "shared/roving.js";
import { stageColor } from "shared/theme.js";
import { deviceMenu } from "./page/menu.js";
import { tile } from "./page/tile.js";

function render({ model, el }) {
  const cleanUp = cleanUps();
  const states = new Map(); // name -> what Python said of it last
  const tiles = new Map();
  let changed = new Set();

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" },
    ...["computing", "sending", "waiting"].map((does) => h("span", {}, h("i", { class: "dtfm-pulse", "data-does": does }), does)));
  const scroll = h("div", { class: "dtfm-devices-scroll" });
  const empty = h("div", { class: "dtfm-devices-empty" }, "No plan yet: its devices will be here.");
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const root = frame("dtfm-devices", "Devices");
  root.removeAttribute("tabindex"); // its tiles take the focus
  root.append(h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), legend), scroll, empty, caption);
  el.append(root);

  const menu = deviceMenu(root, (device, action) => model.send({ kind: "act", device, do: action }), cleanUp);
  const nPipelines = () => Math.max(1, new Set(model.get("devices").map((device) => device.pipeline)).size);
  const rove = roving(scroll, () => [...tiles.values()].map((one) => one.element), () => model.get("devices").length / nPipelines());

  function choose(name, event) {
    const before = model.get("selected");
    const together = event.shiftKey || event.ctrlKey || event.metaKey;
    const without = before.filter((other) => other !== name);
    model.set("selected", together ? (without.length < before.length ? without : [...before, name]) : [name]);
    model.save_changes();
    if (!together) menu.open(tiles.get(name).element, whatOf(name));
  }

  function whatOf(name) {
    const state = states.get(name) ?? {};
    const may = new Set(state.may ?? []);
    return {
      device: model.get("devices").find((device) => device.name === name), state,
      actions: model.get("actions").map((action) => ({ ...action, possible: may.has(action.do) })),
      hint: may.size ? "" : model.get("hint"),
    };
  }

  function build() {
    const devices = model.get("devices");
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.device : null;
    menu.close();
    tiles.clear();
    for (const device of devices) tiles.set(device.name, tile(device, choose));
    const stages = devices.filter((device) => device.pipeline === devices[0].pipeline);
    const head = stages.map(({ stage, stages: held }) => h("div", { class: "dtfm-devices-stage" },
      h("i", { class: "dtfm-swatch", style: `color:${stageColor(stage)}` }), `${held.includes(",") ? "stages" : "stage"} ${held}`));
    const rows = [];
    for (let at = 0; at < devices.length; at += stages.length)
      rows.push(h("div", { class: "dtfm-devices-pipeline" }, `pipeline ${devices[at].pipeline}`),
        ...devices.slice(at, at + stages.length).map((device) => tiles.get(device.name).element));
    const grid = h("div", { class: "dtfm-devices-grid", style: `--stages:${Math.max(1, stages.length)}` }, h("div"), ...head, ...rows);
    scroll.replaceChildren(...(devices.length ? [grid] : []));
    scroll.hidden = !devices.length;
    empty.hidden = devices.length > 0;
    changed = new Set(tiles.keys());
    showNow();
    showSelected();
    rove();
    if (focused) tiles.get(focused)?.element.focus({ preventScroll: true });
  }

  function showNow() {
    for (const name of changed) tiles.get(name)?.show(states.get(name) ?? {});
    if (menu.isOpenFor !== null && changed.has(menu.isOpenFor)) menu.update(whatOf(menu.isOpenFor));
    changed = new Set();
  }
  const show = oncePerFrame(showNow, cleanUp);

  function showSelected() {
    const selected = new Set(model.get("selected"));
    for (const [name, one] of tiles) one.element.setAttribute("aria-pressed", String(selected.has(name)));
  }

  function showTexts() {
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    root.setAttribute("aria-label", `${model.get("title")}: a device's menu opens with Enter`);
    legend.hidden = !model.get("running");
  }

  function receive(message) {
    if (message.kind !== "states") return;
    if (message.all) {
      for (const name of states.keys()) changed.add(name);
      states.clear();
    }
    for (const [name, state] of Object.entries(message.states)) {
      states.set(name, state);
      changed.add(name);
    }
    show();
  }

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(model, ["devices"], build, cleanUp);
  onTraits(model, ["selected"], showSelected, cleanUp);
  onTraits(model, ["title", "caption", "running"], showTexts, cleanUp);
  showTexts();
  build();
  model.send({ kind: "hello" }); // Python answers with every state
  return cleanUp.run;
}

export default { render };
