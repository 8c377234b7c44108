// The topology editor. The document is the truth, Python holds it; every gesture makes a new one,
// draws it and sends it once. Nothing here knows what a document costs or whether it is valid.
import { isStill, onPulse, onShine, onTime, shine } from "shared/bus.js";
import { pulsing } from "shared/pulse.js";
import { sharpCanvas } from "shared/canvas.js";
import { cleanUps, frame, h, onTraits, oncePerFrame, sized, targetOf } from "shared/dom.js";
import { linkDrag, linkLabel } from "shared/link_drag.js";
import { playbackAt, playbackRows } from "shared/playback.js";
import { view } from "shared/view.js";
import * as docs from "./page/document.js";
import { addLine, conditionsOf, removeLines, samePair, setConditions } from "./page/lines.js";
import { badges } from "./page/badges.js";
import { duplicateDevices, duplicateRegions } from "./page/copies.js";
import { arranged, placed } from "./page/arrange.js";
import { dropZone, onDownload } from "./page/files.js";
import { topologyGraph } from "./page/graph.js";
import { hostCard } from "./page/host_card.js";
import { withoutDevices } from "./page/hosts.js";
import { describe } from "./page/inspector.js";
import { labelLayer, placeLabels } from "./page/labels.js";
import { lightOf } from "./page/light.js";
import { layOut, paint } from "./page/paint.js";
import { sidePanel } from "./page/panel.js";
import { fitting, inOwnPlaces } from "./page/room.js";
import { recoveries, travelling } from "./page/running.js";
import { emptyState, inventory, legendEntries } from "./page/surroundings.js";
import { meaning, searchField, toolbar } from "./page/toolbar.js";
/** @import { Conditions, Document, Moment, Paint, Point, Pointed, Render } from "shared/types.d.ts" */
/** @import { Choice, Command, Edit, Ends, Laid, Running, Scene, SceneLine, Traits } from "./types.d.ts" */

const FADE_MS = 150; // how long what is not pointed at takes to fade
const BELOW = { tools: 46, kinds: 70 }; // pixels of the tools below a drawing, and of the kinds of GPU above them
const CARD = { top: 8, bottom: 50 }; // pixels of the canvas that an open host leaves free: the legend and the tools
const [STEP, LEAP] = [5, 25]; // how far an arrow key moves, without and with Shift

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  let tool = "select";
  /** @type {Ends | null} */
  let shownLink = null; // a link that another view has selected: [a, b], whether it is drawn or not
  let shownUnder = ""; // what was selected here then; once that changes, the link is no longer looked at
  /** @type {{ ends: Ends | null, under: string }} */
  let faced = { ends: null, under: "" }; // the way from which a pair was edited, and what was selected then
  let notice = ""; // the last refusal, until something else happens
  let opened = ""; // the host whose devices are shown
  let parts = new Set(model.get("selected_members")); // devices of selected hosts that are selected alone

  const stage = h("div", { class: "dtfm-stage" });
  const over = h("div", { class: "dtfm-over" });
  const legend = h("div", { class: "dtfm-legend dtfm-gpus" });
  const empty = emptyState(() => addDevice("", graph.freePlace()));
  const side = h("div", { class: "dtfm-side" });
  const status = h("div", { class: "dtfm-status", "aria-live": "polite" });
  const foot = h("div", { class: "dtfm-canvas-foot" }, legend);
  const box = h("div", { class: "dtfm-box" }, stage, over, empty, foot);
  const main = h("div", { class: "dtfm-main" }, box, side);
  const root = frame("dtfm-editor", "Network canvas", "application");
  const panel = sidePanel(side);

  /** @type {{ width: number, height: number } | null} */
  let room = null; // for the drawing, as it was fitted last
  /** @type {Document} any: null until the first reading, which sets it before it is asked for */
  let drawn = /** @type {any} */ (null); // the document as Python has it, whose devices may have other places on a small screen
  /** @type {Document} any: as above */
  let shown = /** @type {any} */ (null); // and as it was shown
  /** @type {() => Document} */
  function read() {
    drawn = placed(docs.complete({ ...model.get("outline"), links: model.get("links") }));
    shown = fitting(drawn, room);
    return shown;
  }
  let present = read();
  const now = () => present;
  const filled = () => model.get("filled");

  const graph = topologyGraph(
    stage,
    {
      chosen: sendSelection,
      moved: (places, joined) => edit(docs.joinRegions(docs.moveDevices(now(), places), joined ?? new Map())),
      added: addDevice,
      joined: (kind, ends) => edit(addLine(now(), kind, ends, filled()), kind === "link" ? { links: [ends] } : { pairs: [ends] }),
      swapped(a, b) {
        graph.draw(now()); // devices stay where they are: their tasks change places
        model.send({ kind: "swap", a, b });
      },
      tapped(host) {
        if (host) chooseParts([]);
        open(host === opened ? "" : host);
      },
      opened: (data) => (data.kind === "region" ? graph.choose({ devices: membersOf([data.name]) }) : openForm()),
      pointed: (data) => point(data),
      changed: () => draw(),
      resized: () => fit(),
    },
    () => ({ highlight: model.get("highlight"), filled: filled(), below: legend.offsetHeight ? BELOW.kinds : BELOW.tools }),
    cleanUp,
  );

  const { draw } = sharpCanvas(over, picture, cleanUp);
  const stages = badges(() => draw());
  const recovering = recoveries(() => draw());
  const labels = labelLayer(
    model,
    {
      read: (line) => conditionsOf(now(), line.kind, line.ends, filled()),
      set: (line, { latency_ms, bandwidth_gbps }) => putDragged(withConditions(line, { latency_ms, bandwidth_gbps })),
      press(line, event) {
        if (event.type === "keydown" && graph.isSelected(line.id)) return openForm();
        graph.choose(line.kind === "link" ? { links: [line.ends] } : { pairs: [line.ends] });
      },
      point: (line) => point(line && { kind: line.kind, id: line.id, name: "", ends: line.ends }),
    },
    cleanUp,
  );
  const card = hostCard(
    root,
    model,
    {
      chosen: (device) => chooseParts([device]),
      left() {
        open("");
        backToCanvas();
      },
      read: (host) => docs.named(now().devices, host)?.inside ?? now().default,
      set: (host, { latency_ms, bandwidth_gbps }) => putDragged(docs.changeDevices(now(), [host], { inside: { latency_ms, bandwidth_gbps } })),
    },
    cleanUp,
  );
  const others = linkLabel("pairs without a line");
  linkDrag(
    others.element,
    model,
    {
      read: () => now().default,
      set: (conditions) =>
        putDragged({ ...now(), default: { ...now().default, latency_ms: conditions.latency_ms, bandwidth_gbps: conditions.bandwidth_gbps } }),
      show: (conditions) => others.write(conditions),
      press: () => {
        graph.choose({});
        openForm();
      },
    },
    cleanUp,
  );
  const rest = h("div", { class: "dtfm-other-pairs", hidden: true }, h("span", {}, "Any other pair"), others.element);
  foot.prepend(rest);
  over.setAttribute("aria-hidden", "true");
  box.addEventListener("pointerleave", () => point(null)); // a drag that ends here hears no more of the pointer
  box.append(labels.element, card.element);
  const beat = pulsing();
  let rows = playbackRows(model.get("playback")); // what can be played
  let time = /** @type {Moment} */ (null); // and the moment that is
  /** @type {{ what: Pointed, before?: Pointed, since: number, up: boolean }} */
  let lit = { what: null, since: -Infinity, up: false }; // what is pointed at, here or elsewhere
  let hovered = "";
  /** @type {Laid} any: null until the first picture, which sets it before it is asked for */
  let laid = /** @type {any} */ (null); // where everything is, of `laidFor`
  let laidFor = "";
  /** @type {Scene | null} */
  let taken = null; // the scene whose badges are shown
  /** @type {{ key?: string, scene?: Scene }} */
  let labelledFor = {}; // what the labels stand for: {key, scene}

  /**
   * Paints the canvas, and puts the labels on their lines.
   * @type {Paint}
   */
  function picture(context, width, height, theme) {
    const { scene } = graph;
    const view = graph.view();
    const key = JSON.stringify([graph.layout, view.zoom, view.toScreen({ x: 0, y: 0 }), width, height, graph.peeked]);
    const moved = key !== laidFor;
    if (moved) [laid, laidFor] = [layOut(context, scene, view, graph.peeked), key];
    /** @type {(name: string) => Point} */
    const place = (name) => graph.place(name);
    if (scene !== taken) {
      // edges and scene are redrawn one frame after the plan arrives
      taken = scene;
      stages.take(scene.tasks, graph.place);
    }
    const run = time && rows.length ? playedAt(time.t_s) : null;
    const conditions = recovering.seen(model.get("conditions"));
    const shade = Math.min(1, isStill() ? 1 : (performance.now() - lit.since) / FADE_MS);
    if (shade < 1 || beat.on) draw();
    const light = lit.what || !lit.up ? lightOf(lit.what ?? lit.before ?? null, scene) : null;
    const host = scene.devices.find(({ name, members }) => name === opened && members.length > 0);
    card.show(host ?? null, laid.frames.get(opened), scene, { theme, width, height, ...CARD, parts, light: lit.up ? light : null, run, conditions });
    paint(context, scene, view, laid, {
      theme,
      width,
      height,
      conditions,
      hovered,
      run,
      found,
      parts,
      stage: model.get("highlight").stage ?? -1,
      aimed: graph.aimed(),
      under: graph.under(),
      selected: (kind, name) => graph.isSelected(kind === "link" || kind === "pair" ? name : `${kind}:${name}`),
      nSelected: graph.nSelected(),
      light,
      shade: lit.up ? shade : 1 - shade,
      badges: stages.now(place),
      beat: beat.now(),
      travelling: [...(run ? travelling(run.messages, scene, laid) : []), ...recovering.now(scene, laid, theme.dark)],
    });
    /** @type {(line: SceneLine) => boolean} */
    const selected = (line) => graph.isSelected(line.id);
    const labelled = JSON.stringify([key, hovered, labels.held(), scene.lines.filter(selected).map((line) => line.id)]);
    if (labelled === labelledFor.key && scene === labelledFor.scene) return; // a run moves no label
    labelledFor = { key: labelled, scene };
    labels.show(
      scene.lines,
      placeLabels(scene.lines, laid, { width, height, top: 4, bottom: 60 }, (line) => selected(line) || line.id === hovered || line.id === labels.held()),
      selected,
    );
  }

  /** @type {(t_s: number) => Running} */
  function playedAt(t_s) {
    const names = model.get("playback_devices");
    const { computing, messages } = playbackAt(rows, t_s);
    return {
      computing: computing.map((one) => ({ ...one, device: names[one.device] })),
      messages: messages.map((one) => ({ ...one, source: names[one.source], target: names[one.target] })),
    };
  }

  /**
   * Tells every view of the lab what is pointed at here.
   * @type {(data: { id: string, kind: string, name: string, ends: Ends } | null) => void}
   */
  function point(data) {
    const id = data ? data.id : "";
    if (id === hovered) return;
    hovered = id;
    root.style.cursor = "";
    const what = !data
      ? null
      : data.kind === "device"
        ? { devices: insideOf([data.name]) }
        : data.kind === "region"
          ? { devices: insideOf(membersOf([data.name])) }
          : data.kind === "link"
            ? { link: data.ends.map((end) => insideOf([end])[0]) }
            : { devices: insideOf(membersOf(data.ends)) };
    shine(root, what);
  }

  /** @type {(what: Pointed) => void} */
  function shone(what) {
    const before = lit.what ?? lit.before;
    if (docs.same(what, lit.what)) return;
    const wasUp = lit.up && lit.what;
    lit = { what, before, up: Boolean(what), since: wasUp && what ? -Infinity : performance.now() };
    draw();
  }

  /**
   * Gives a line these numbers, in its direction, or both ways where it stands for both.
   * @type {(line: SceneLine, conditions: Conditions) => Document}
   */
  const withConditions = (line, conditions) => setConditions(now(), line.kind, line.ends, conditions, !line.oneWay, filled());

  /** Shows all, with devices where the room now is. */
  function fit() {
    const wide = graph.room();
    if (wide && !docs.same(wide, room)) {
      room = wide;
      const next = read();
      if (!docs.same(next, present)) {
        present = next;
        graph.draw(next);
      }
    }
    graph.fit();
  }

  /** @type {(next: Document) => void} */
  function set(next) {
    present = next;
    const { links, ...outline } = inOwnPlaces(next, shown, drawn);
    if (!docs.same(outline, model.get("outline"))) model.set("outline", outline);
    if (!docs.same(links, model.get("links"))) model.set("links", links);
  }

  const drawDragged = oncePerFrame(() => {
    graph.draw(present);
    refresh();
  }, cleanUp);

  /**
   * Sets the document as one of many while a label is dragged, whose hand sends it: before all is drawn, as that takes a while.
   * @type {(next: Document) => void}
   */
  function putDragged(next) {
    set(next);
    drawDragged();
  }

  /**
   * One gesture: one entry in the history, one message. `chosen` is what is selected after it, if not the same.
   * @type {Edit}
   */
  function edit(next, chosen) {
    notice = "";
    const hasMany = next.devices.length > now().devices.length + 1; // a host's devices may be out of sight
    if (!docs.same(next, now())) set(next);
    graph.draw(now());
    if (chosen) {
      graph.choose(chosen);
      if (hasMany) graph.reveal(chosen.devices ?? []);
      faced = { ends: chosen.links?.[0] ?? chosen.pairs?.[0] ?? null, under: JSON.stringify(graph.chosen()) };
    }
    putSelection();
    refresh();
    model.save_changes();
  }

  /**
   * The way between two devices that is looked at without being selected as a line.
   * @type {() => Ends | null}
   */
  function peeked() {
    const { devices, links } = graph.chosen();
    if (links.length) return null;
    return devices.length === 2 ? devices : shownLink;
  }

  /**
   * The way from which the selected pair was edited or pointed at, if it was.
   * @type {() => Ends | null}
   */
  const facing = () => (faced.under === JSON.stringify(graph.chosen()) ? faced.ends : null);

  /**
   * The link that is selected, drawn or not, as [from, to], or one that runs between the selected pair; empty for none.
   * @type {() => Ends}
   */
  function chosenLink() {
    const { links, pairs } = graph.chosen();
    const ends = links.length === 1 ? links[0].ends : (peeked() ?? (pairs.length === 1 ? standIns(pairs[0].ends) : null));
    const way = facing();
    return ends && way && samePair(ends, way) ? way : (ends ?? []);
  }

  /**
   * A device of each of two regions, for views that only know links of devices. Null if one is empty.
   * @type {(regions: string[]) => Ends | null}
   */
  function standIns(regions) {
    const ends = regions.flatMap((region) => now().devices.find((device) => device.region === region)?.name ?? []);
    return ends.length < regions.length ? null : ends;
  }

  /** Tells Python what is selected, if that has changed. */
  function putSelection() {
    const chosen = graph.chosen();
    if (shownLink && JSON.stringify(chosen) !== shownUnder) shownLink = null;
    /** @type {["selected" | "selected_members" | "selected_link", string[]][]} */
    const all = [
      ["selected", chosen.devices],
      ["selected_link", chosenLink()],
    ];
    parts = new Set([...parts].filter((name) => chosen.devices.includes(graph.scene.hostOf.get(name) ?? "")));
    all.push(["selected_members", [...parts]]);
    const news = all.filter(([name, value]) => !docs.same(value, model.get(name)));
    for (const [name, value] of news) model.set(name, value);
    return news.length > 0;
  }

  function sendSelection() {
    if (putSelection()) model.save_changes();
    refresh();
  }

  /** @type {(region: string, place: Point) => void} */
  function addDevice(region, { x, y }) {
    const [next, name] = docs.addDevice(now(), { region, gpu: model.get("gpus")[0] ?? "", x, y });
    edit(next, { devices: [name] });
  }

  /** @type {(regions: string[]) => string[]} */
  const membersOf = (regions) =>
    now()
      .devices.filter((device) => regions.includes(device.region))
      .map((device) => device.name);

  /**
   * What these stand for: of hosts their devices, of devices themselves.
   * @type {(names: string[]) => string[]}
   */
  const insideOf = (names) => names.flatMap((name) => docs.named(now().devices, name)?.members ?? [name]);

  /**
   * Selects these devices inside their host alone; none selects the selected hosts as a whole.
   * @type {(names: string[]) => void}
   */
  function chooseParts(names) {
    parts = new Set(names);
    const hosts = new Set(names.map((name) => graph.scene.hostOf.get(name) ?? name));
    if (names.length) graph.choose({ devices: [...hosts] });
    sendSelection();
    draw();
  }

  /**
   * Shows the devices of a host; empty shows none.
   * @type {(host: string) => void}
   */
  function open(host) {
    if (host === opened) return;
    opened = host;
    draw();
  }

  function remove() {
    const { devices, regions, links, pairs } = graph.chosen();
    const withoutLines = removeLines(removeLines(now(), "link", links), "pair", pairs);
    const isBroken = parts.size > 0;
    edit(docs.removeRegions(withoutDevices(withoutLines, [...devices, ...membersOf(regions)], parts), regions), {});
    if (isBroken) fit();
  }

  function group() {
    const { devices } = graph.chosen();
    const [next, region] = docs.groupDevices(now(), devices);
    edit(next, { regions: [region] });
  }

  function ungroup() {
    const { devices, regions } = graph.chosen();
    edit(docs.removeRegions(docs.changeDevices(now(), devices, { region: "" }), regions), { devices: [...devices, ...membersOf(regions)] });
  }

  function duplicate() {
    const { devices, regions } = graph.chosen();
    const [copyDevices, copyRegions] = [devices.length > 0, regions.length > 0];
    /** @type {[Document, string[], string[]]} */
    let [next, newRegions, newDevices] = [now(), [], []];
    if (copyRegions) [next, newRegions] = duplicateRegions(next, regions);
    const loose = devices.filter((name) => !membersOf(regions).includes(name));
    if (copyDevices) [next, newDevices] = duplicateDevices(next, loose);
    edit(next, { devices: newDevices, regions: newRegions });
    graph.reveal(next.devices.filter((device) => newDevices.includes(device.name) || newRegions.includes(device.region)).map((device) => device.name));
  }

  /**
   * The next device in the document's order, for keyboards.
   * @type {(by: number) => void}
   */
  function step(by) {
    const names = now().devices.flatMap(({ name, members = [] }) => (name === opened ? [name, ...members] : [name]));
    if (!names.length) return;
    const at = names.indexOf([...parts].find((name) => names.includes(name)) ?? graph.chosen().devices.at(-1));
    const next = names[at < 0 ? (by > 0 ? 0 : names.length - 1) : (at + by + names.length) % names.length];
    if (graph.scene.hostOf.has(next)) return chooseParts([next]);
    parts = new Set();
    graph.choose({ devices: [next] });
    graph.reveal([next]);
    sendSelection();
  }

  /** What the tool in hand does without a pointer. */
  function enter() {
    const { devices, regions } = graph.chosen();
    if (tool === "add") return addDevice(regions.length === 1 ? regions[0] : "", graph.freePlace());
    if (tool !== "link" && devices.length === 1 && graph.scene.hostOf.has(insideOf(devices)[0])) {
      open(devices[0]);
      return requestAnimationFrame(() => card.focus());
    }
    if (tool !== "link") return openForm();
    if (devices.length === 2) return edit(addLine(now(), "link", devices, filled()), { links: [devices] });
    if (regions.length === 2) return edit(addLine(now(), "pair", regions, filled()), { pairs: [regions] });
    return refuse("Enter links two devices or two regions: select two first.");
  }

  /** @type {(text: string) => number} */
  function find(text) {
    found = new Set(docs.matches(now(), text));
    draw();
    return found.size;
  }

  function takeFound() {
    const names = docs.matches(now(), search.value());
    if (!names.length) return;
    bar.show(false);
    use("select");
    graph.choose({ devices: names });
    graph.reveal(names);
    backToCanvas();
  }

  /** The form covers the canvas if that fills its pane. Otherwise it is always next to it. */
  function openForm() {
    root.classList.add("dtfm-form");
    side.querySelector("input, select")?.focus({ preventScroll: true });
  }
  function closeForm() {
    if (!root.classList.contains("dtfm-form")) return false;
    root.classList.remove("dtfm-form");
    backToCanvas();
    return true;
  }

  const backToCanvas = () => root.focus({ preventScroll: true });
  /** @type {Set<string>} */
  let found = new Set();
  const search = searchField(find, takeFound, backToCanvas);
  /** @type {(...kinds: ("devices" | "regions" | "links" | "pairs")[]) => boolean} */
  const some = (...kinds) => kinds.some((kind) => graph.chosen()[kind].length > 0);
  const inRegion = () => graph.chosen().devices.some((name) => docs.named(now().devices, name)?.region);
  const always = () => true;
  const selectFirst = "select something first";
  /** @type {Command[]} */
  const commands = [
    {
      name: "undo",
      label: "Undo",
      keys: "Ctrl+Z",
      hint: "Undo",
      run: () => model.send({ kind: "undo" }),
      possible: () => model.get("can_undo"),
      why: "nothing has been changed",
    },
    {
      name: "redo",
      label: "Redo",
      keys: "Ctrl+Y",
      hint: "Redo",
      run: () => model.send({ kind: "redo" }),
      possible: () => model.get("can_redo"),
      why: "nothing has been undone",
    },
    { name: "fit", label: "Fit", keys: "F", hint: "Show everything", run: fit, possible: always, why: "" },
    {
      name: "delete",
      label: "Delete",
      keys: "Del",
      hint: "Delete the selection. A region is deleted with its devices",
      run: remove,
      possible: () => some("devices", "regions", "links", "pairs"),
      why: selectFirst,
    },
    {
      name: "duplicate",
      label: "Duplicate",
      keys: "Ctrl+D",
      hint: "Copy the selected devices, or a region with everything in it",
      run: duplicate,
      possible: () => some("devices", "regions"),
      why: "select devices or a region first",
    },
    {
      name: "group",
      label: "Group",
      keys: "G",
      hint: "Make a region of the selected devices",
      run: group,
      possible: () => some("devices"),
      why: "select devices first",
    },
    {
      name: "ungroup",
      label: "Ungroup",
      keys: "Shift+G",
      hint: "Take devices out of their region",
      run: ungroup,
      possible: () => some("regions") || inRegion(),
      why: "select a region, or devices of one, first",
    },
    {
      name: "arrange",
      label: "Arrange",
      keys: "no key",
      hint: "Lay devices out region by region",
      run: () => {
        edit(arranged(now()));
        room = null; // they may have no room as they stand now
        fit();
      },
      possible: () => now().devices.length > 1,
      why: "there are not two devices yet",
    },
  ];
  const bar = toolbar(use, commands, () => (root.classList.contains("dtfm-form") ? closeForm() : openForm()), cleanUp, search.element);
  /** @type {Record<string, () => void>} */
  const silent = {
    all: graph.chooseAll,
    none: () => {
      if (closeForm()) return;
      if (opened) {
        open("");
        return backToCanvas();
      }
      use("select");
      graph.choose({});
    },
    search: () => {
      bar.show(true);
      search.focus();
    },
    enter,
    next: () => step(1),
    previous: () => step(-1),
  };

  /** @type {(nextTool: string) => void} */
  function use(nextTool) {
    tool = nextTool;
    graph.use(tool);
    bar.update(tool);
  }

  function refresh() {
    const peek = peeked();
    graph.peek(peek);
    root.dataset.peeked = (peek ?? []).join(" – ");
    panel.show(describe(now(), graph.chosen(), { peek, facing: facing(), gpus: model.get("gpus"), filled: filled() }, edit));
    bar.update(tool);
    empty.hidden = now().devices.length + now().regions.length > 0;
    legend.replaceChildren(...legendEntries(now(), model.get("gpus"), filled().length > 0, (devices) => graph.choose({ devices })));
    rest.hidden = !graph.scene.hasDefault;
    others.write(now().default);
    search.again();
    if (hovered && !graph.has(hovered)) point(null); // removed things are not pointed at
    if (opened && !graph.has(`device:${opened}`)) open(""); // else Esc would close what is not there
    showStatus();
  }

  /** @type {(line: string) => void} */
  function refuse(line) {
    notice = line;
    showStatus();
  }

  function showStatus() {
    const problem = notice || model.get("problem");
    status.textContent = problem || model.get("summary") || inventory(now());
    status.classList.toggle("dtfm-problem", Boolean(problem));
    const { devices, regions } = graph.chosen();
    root.setAttribute("aria-label", `Network canvas: ${[...(parts.size ? parts : devices), ...regions].slice(0, 3).join(", ") || inventory(now())}`);
  }

  /** Another hand changed the document: Python, or a second view. Our own echo is the same document. */
  function reload() {
    const next = read();
    if (docs.same(next, now()) || labels.dragging()) return;
    /** @type {(document: Document) => string[]} */
    const names = (document) => document.devices.map((device) => device.name).sort();
    const others = !docs.same(names(next), names(now()));
    present = next;
    notice = "";
    graph.draw(next);
    if (others) fit();
    chooseDevices(model.get("selected"));
    sendSelection(); // what was selected may be gone
  }

  function takeSelection() {
    const wanted = model.get("selected");
    parts = new Set(model.get("selected_members"));
    draw();
    if (docs.same([...wanted].sort(), [...graph.chosen().devices].sort())) return;
    chooseDevices(wanted);
    shownUnder = JSON.stringify(graph.chosen());
  }

  /**
   * Selects these devices, and leaves selected what else is.
   * @type {(devices: string[]) => void}
   */
  function chooseDevices(devices) {
    const { regions, links, pairs } = graph.chosen();
    /** @type {(lines: { ends: Ends }[]) => Ends[]} */
    const ends = (lines) => lines.map((line) => line.ends);
    graph.choose({ devices, regions, links: ends(links), pairs: ends(pairs) });
  }

  /** Another view points at a link: select it if it is drawn, else draw it thin; either way bring it into view. */
  function takeLink() {
    const wanted = model.get("selected_link");
    if (docs.same(wanted, chosenLink())) return;
    shownLink = wanted.length === 2 ? wanted : null;
    graph.choose({ devices: model.get("selected"), links: shownLink ? [shownLink] : [] });
    shownUnder = JSON.stringify(graph.chosen());
    faced = { ends: shownLink, under: shownUnder };
    if (shownLink) graph.reveal(shownLink);
    refresh();
  }

  /** @type {(by: [number, number], far: boolean) => void} */
  function nudge([x, y], far) {
    const distance = far ? LEAP : STEP;
    const places = graph.nudge(x * distance, y * distance);
    if (places) edit(docs.moveDevices(now(), places));
  }

  root.addEventListener("keydown", (event) => {
    if (/^(INPUT|SELECT)$/.test(targetOf(event).tagName)) return;
    if (targetOf(event).tagName === "BUTTON" && event.key === "Enter") return;
    /** @type {(name: string) => () => void} */
    const command = (name) =>
      silent[name]
      ?? (() => {
        const one = commands.find((each) => each.name === name);
        if (one?.possible()) one.run();
      });
    const action = meaning(event, use, command, nudge);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  box.addEventListener("pointerleave", () => point(null));
  // Cytoscape blurs whatever has the focus on a press; this listener comes after its own.
  for (const press of ["mousedown", "touchend"]) stage.addEventListener(press, backToCanvas);

  // Both may change in one gesture, one after the other: they are read once both are there.
  let gone = false;
  cleanUp.add(() => {
    gone = true;
  });
  onTraits(
    model,
    ["outline", "links"],
    () =>
      queueMicrotask(() => {
        if (!gone) reload();
      }),
    cleanUp,
  );
  onTraits(model, ["selected", "selected_members"], takeSelection, cleanUp);
  onTraits(model, ["selected_link"], takeLink, cleanUp);
  const redraw = oncePerFrame(() => {
    graph.redrawEdges();
    refresh();
  }, cleanUp);
  onTraits(model, ["highlight", "filled"], redraw, cleanUp);
  onTraits(model, ["gpus"], refresh, cleanUp);
  onTraits(
    model,
    ["playback", "playback_devices"],
    () => {
      rows = playbackRows(model.get("playback"));
      draw();
    },
    cleanUp,
  );
  onTraits(
    model,
    ["conditions", "restored_from"],
    () => {
      recovering.take(model.get("conditions"), model.get("restored_from"));
      draw();
    },
    cleanUp,
  );
  onShine(root, shone, cleanUp);
  onPulse(
    root,
    () => {
      beat.begin();
      draw();
    },
    cleanUp,
  );
  onTime(
    root,
    (moment) => {
      time = moment;
      draw();
    },
    cleanUp,
  );
  onTraits(model, ["problem", "summary"], showStatus, cleanUp);
  onTraits(model, ["can_undo", "can_redo"], () => bar.update(tool), cleanUp);
  onDownload(model, cleanUp);
  dropZone(root, (names, buffers) => model.send({ kind: "files", names }, undefined, buffers), refuse, cleanUp);

  foot.append(bar.element);
  root.append(main, status);
  el.append(root);
  sized(model, el, root, main, cleanUp);
  side.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && closeForm()) event.stopPropagation();
  });
  use("select");
  graph.draw(now());
  graph.choose({ devices: model.get("selected") });
  fit();
  takeLink();
  refresh();
  return cleanUp.run;
}

export default view(render);
