// The topology editor. The document is the truth, Python holds it; every gesture makes a new one,
// draws it and sends it once. Nothing here knows what a document costs or whether it is valid.
import { cleanUps, frame, h, onTraits } from "./shared/dom.js";
import * as docs from "./editor/document.js";
import { arranged, placed } from "./editor/arrange.js";
import { topologyGraph } from "./editor/graph.js";
import { describe } from "./editor/inspector.js";
import { sidePanel } from "./editor/panel.js";
import { gpuLook } from "./editor/style.js";
import { meaning, toolbar } from "./editor/toolbar.js";

const [STEP, LEAP] = [5, 25]; // how far an arrow key moves, without and with Shift

function render({ model, el }) {
  const cleanUp = cleanUps();
  let tool = "select";

  const stage = h("div", { class: "dtfm-stage" });
  const legend = h("div", { class: "dtfm-legend dtfm-gpus" });
  const empty = h("div", { class: "dtfm-empty" }, "Press D and click to add a device");
  const side = h("div", { class: "dtfm-side" });
  const status = h("div", { class: "dtfm-status", "aria-live": "polite" });
  const main = h("div", { class: "dtfm-main" }, h("div", { class: "dtfm-box" }, stage, legend, empty), side);
  const root = frame("dtfm-editor", "Topology editor", "application");
  const panel = sidePanel(side);

  const read = () => placed(docs.complete(model.get("document")));
  let present = read();
  const now = () => present;

  const graph = topologyGraph(stage, {
    chosen: tellSelection,
    moved: (places) => edit(docs.moveDevices(now(), places)),
    added: addDevice,
    linked: (source, target) => edit(docs.addLink(now(), source, target), { links: [{ source, target }] }),
    connected: (...regions) => edit(docs.connectRegions(now(), regions), { pairs: [docs.findPair(now(), regions)?.regions ?? regions] }),
  }, () => ({ gpus: model.get("gpus"), stages: model.get("highlight").stages ?? {} }), cleanUp);

  /** One gesture: one entry in the history, one message. */
  function edit(next, chosen) {
    if (!docs.same(next, now())) {
      present = next;
      model.set("document", next);
    }
    show(chosen ?? graph.chosen());
    model.save_changes();
  }

  function show(chosen) {
    graph.draw(now());
    graph.choose(chosen);
    model.set("selected", graph.chosen().devices);
    refresh();
  }

  function tellSelection() {
    const { devices } = graph.chosen();
    if (!docs.same(devices, model.get("selected"))) {
      model.set("selected", devices);
      model.save_changes();
    }
    refresh();
  }

  function addDevice(region, { x, y }) {
    const [next, name] = docs.addDevice(now(), { region, gpu: model.get("gpus")[0] ?? "", x, y });
    edit(next, { devices: [name] });
  }

  function remove() {
    const { devices, regions, links, pairs } = graph.chosen();
    const inside = now().devices.filter((device) => regions.includes(device.region)).map((device) => device.name);
    const withoutLines = docs.removePairs(docs.removeLinks(now(), links), pairs);
    edit(docs.removeRegions(docs.removeDevices(withoutLines, [...devices, ...inside]), regions), {});
  }

  function group() {
    const { devices } = graph.chosen();
    const [next, region] = docs.groupDevices(now(), devices);
    edit(next, { regions: [region] });
  }

  function ungroup() {
    const { devices, regions } = graph.chosen();
    const freed = now().devices.filter((device) => regions.includes(device.region)).map((device) => device.name);
    edit(docs.removeRegions(docs.changeDevices(now(), devices, { region: "" }), regions), { devices: [...devices, ...freed] });
  }

  const some = (...kinds) => kinds.some((kind) => graph.chosen()[kind].length > 0);
  const inRegion = () => graph.chosen().devices.some((name) => docs.named(now().devices, name)?.region);
  const always = () => true;
  const commands = [
    { name: "delete", label: "Delete", keys: "Del", hint: "Delete what is selected; a region goes with its devices", run: remove, possible: () => some("devices", "regions", "links", "pairs") },
    { name: "group", label: "Group", keys: "G", hint: "Make a region of the selected devices", run: group, possible: () => some("devices") },
    { name: "ungroup", label: "Ungroup", keys: "Shift+G", hint: "Take devices out of their region", run: ungroup, possible: () => some("regions") || inRegion() },
    null,
    { name: "undo", label: "Undo", keys: "Ctrl+Z", hint: "Undo", run: () => model.send({ kind: "undo" }), possible: () => model.get("can_undo") },
    { name: "redo", label: "Redo", keys: "Ctrl+Y", hint: "Redo", run: () => model.send({ kind: "redo" }), possible: () => model.get("can_redo") },
    null,
    { name: "fit", label: "Fit", keys: "F", hint: "Show everything", run: graph.fit, possible: always },
    { name: "arrange", label: "Arrange", keys: "no key", hint: "Lay devices out region by region", run: () => { edit(arranged(now())); graph.fit(); }, possible: () => now().devices.length > 1 },
  ];
  const bar = toolbar(use, commands);
  const silent = { all: graph.chooseAll, none: () => { use("select"); graph.choose({}); } };

  function use(nextTool) {
    tool = nextTool;
    graph.use(tool);
    bar.update(tool);
  }

  function refresh() {
    panel.show(describe(now(), graph.chosen(), model.get("gpus"), edit));
    bar.update(tool);
    empty.hidden = now().devices.length + now().regions.length > 0;
    legend.replaceChildren(...legendEntries());
    tellStatus();
  }

  function legendEntries() {
    const gpus = model.get("gpus");
    const used = [...new Set(now().devices.map((device) => device.gpu))].sort((a, b) => gpus.indexOf(a) - gpus.indexOf(b));
    const slow = graph.cy.edges(".slow").nonempty();
    return [
      ...used.map((gpu) => {
        const { color, shape } = gpuLook(gpu, gpus);
        return h("span", {}, h("i", { class: `dtfm-swatch dtfm-${shape}`, style: `color:${color}` }), gpu || "no GPU");
      }),
      ...(slow ? [h("span", {}, h("i", { class: "dtfm-dash" }), "under a tenth of the median bandwidth")] : []),
    ];
  }

  function tellStatus() {
    const problem = model.get("problem");
    const { devices, regions, links } = now();
    const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
    const inventory = [count(devices.length, "device"), count(regions.length, "region"), count(links.length, "link")].join(", ");
    status.textContent = problem || model.get("summary") || inventory;
    status.classList.toggle("dtfm-problem", Boolean(problem));
  }

  /** Another hand changed the document: Python, or a second view. Our own echo is the same document. */
  function reload() {
    const next = read();
    if (docs.same(next, now())) return;
    const names = (document) => document.devices.map((device) => device.name).sort();
    const others = !docs.same(names(next), names(now()));
    present = next;
    graph.draw(next);
    if (others) graph.fit();
    refresh();
  }

  function takeSelection() {
    const wanted = model.get("selected");
    if (!docs.same([...wanted].sort(), [...graph.chosen().devices].sort())) graph.choose({ ...graph.chosen(), devices: wanted });
  }

  function nudge([x, y], far) {
    const distance = far ? LEAP : STEP;
    const places = graph.nudge(x * distance, y * distance);
    if (places) edit(docs.moveDevices(now(), places));
  }

  root.addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    const command = (name) => silent[name] ?? (() => { const one = commands.find((each) => each?.name === name); if (one.possible()) one.run(); });
    const action = meaning(event, use, command, nudge);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  // Cytoscape blurs whatever has the focus on a press; this listener comes after its own.
  for (const press of ["mousedown", "touchend"]) stage.addEventListener(press, () => root.focus({ preventScroll: true }));

  const resize = () => { main.style.height = `${model.get("height")}px`; };
  onTraits(model, ["document"], reload, cleanUp);
  onTraits(model, ["selected"], takeSelection, cleanUp);
  onTraits(model, ["highlight", "gpus"], () => { graph.restyle(); refresh(); }, cleanUp);
  onTraits(model, ["problem", "summary"], tellStatus, cleanUp);
  onTraits(model, ["can_undo", "can_redo"], () => bar.update(tool), cleanUp);
  onTraits(model, ["height"], resize, cleanUp);

  root.append(bar.element, main, status);
  el.append(root);
  resize();
  use("select");
  graph.draw(now());
  graph.choose({ devices: model.get("selected") });
  graph.fit();
  refresh();
  return cleanUp.run;
}

export default { render };
