// The world map. The document is the truth, Python holds it; every gesture makes a new one and sends it once.
import { cleanUps, frame, h, onResize, onTraits, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { readTheme, stageColor } from "shared/theme.js";
import { complete, removeDevices, removeRegions, same } from "../editor/page/document.js";
import { gpuLook } from "../editor/page/style.js";
import { cameraOf, millerY } from "./page/camera.js";
import { landPath, paintLand } from "./page/land.js";
import { paintCities, spread } from "./page/cities.js";
import { freeCities, regionsOf, placementOf, standing, target, under } from "./page/placement.js";
import { overhang } from "./page/clusters.js";
import { finder } from "./page/find.js";
import { linesBetween } from "./page/lines.js";
import { addDevice, moveDevices, moveRegion } from "./page/edits.js";
import { gestures } from "./page/gestures.js";
import { paintBox, paintDragged, paintGroups, paintLines, paintNumbers, paintTarget, paintTray } from "./page/paint.js";
import { searchField } from "./page/search.js";
import { toolbar } from "./page/toolbar.js";
import { fitting } from "shared/text.js";
import { count, describe, legendOf } from "./page/words.js";

const own = (things, name) => (Object.hasOwn(things, name) ? things[name] : undefined); // "constructor" is a name too
const LONGEST = 140; // pixels of a region's name
const CLOSE = 16; // pixels a degree where a flight to a city ends

function render({ model, el }) {
  const cleanUp = cleanUps();
  const cities = spread(model.get("cities"));
  const cityOf = new Map(cities.map(({ name, place }) => [name, place]));
  const land = landPath(typed(model.get("land"), Int16Array));
  let tool = "select";
  let present = complete(model.get("document"));
  let [regions, lines] = [[], []];
  let placement = null;
  let pinned = null; // a line whose numbers stay
  let bare = null; // a region without devices that is selected
  let note = "";

  const root = frame("dtfm-map", "World map", "application");
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty dtfm-over", hidden: true });
  const legend = h("div", { class: "dtfm-legend" });
  const status = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const camera = cameraOf(box, () => draw(), cleanUp);
  const { element: canvas, draw } = sharpCanvas(box, paint, cleanUp);
  canvas.setAttribute("aria-hidden", "true");
  const tip = tooltip(box);

  const pen = h("canvas").getContext("2d");
  pen.font = `600 ${readTheme(el).font}`;
  const shown = (name) => fitting(pen, name, LONGEST);
  const nameWidth = (name) => pen.measureText(shown(name)).width;
  const placeOf = (name) => own(model.get("places"), name) ?? cityOf.get(name) ?? null;
  const stages = () => model.get("highlight").stages ?? {};
  /** Selected and drawn: an undo may have taken some of them away. */
  const chosen = () => {
    const selected = new Set(model.get("selected"));
    return new Set(present.devices.map(({ name }) => name).filter((name) => selected.has(name)));
  };
  const gpuColor = (gpu) => gpuLook(gpu, model.get("gpus")).color;
  const look = ({ name, gpu }) => {
    const stage = own(stages(), name);
    return stage === undefined ? { color: gpuColor(gpu) } : { color: stageColor(stage), stage };
  };

  /** One gesture: one entry in the history, one message. */
  function edit(next, selected) {
    if (same(next, present)) return;
    present = next;
    model.set("document", next);
    if (selected) model.set("selected", selected);
    model.save_changes();
    understand();
  }

  function choose(names, more = false) {
    const before = chosen();
    const all = more && names.every((name) => before.has(name));
    const next = more ? [...new Set([...before, ...names])].filter((name) => !all || !names.includes(name)) : names;
    pinned = bare = null;
    if (!same(next, model.get("selected"))) {
      model.set("selected", next);
      model.save_changes();
    }
    refresh();
  }

  const say = (text) => { note = text; showStatus(); };
  const add = (city) => {
    const [next, name] = addDevice(present, city, model.get("gpu") || model.get("gpus")[0] || "");
    edit(next, [name]);
    say(`${name} added to ${city}`);
  };
  /** Lines to other regions were those of the place that was left. */
  const moved = (next, words) => {
    if (next === present) return;
    const lost = present.between.length - next.between.length;
    edit(next);
    say(lost > 0 ? `${words}; ${count(lost, "line")} of the region left behind went with it` : words);
  };
  const tell = {
    chosen: (names, more) => { say(""); choose(names, more); },
    boxed: (names) => choose(names, true),
    pinned: ({ a, b }) => { pinned = { a, b }; say(`${a} – ${b}`); },
    missed: () => say("No city is near: let go close to one, or zoom in; the field above finds cities by name"),
    added: add,
    devicesMoved: (names, city) => {
      const n = present.devices.filter(({ name, region }) => names.includes(name) && region !== city).length;
      moved(moveDevices(present, names, city), `${count(n, "device")} moved to ${city}`);
    },
    regionMoved: (from, city, hadPlace) => moved(moveRegion(present, from, city, hadPlace), `${from || "no region"} moved to ${city}`),
    emptied: (region) => { choose([]); bare = region; say(`${region}: a region without devices`); refresh(); },
  };
  const hand = gestures(root, box, {
    placement: () => placement, cities: () => cities, camera, selected: chosen, tool: () => tool,
  }, tell, draw, cleanUp);

  const find = (text) => finder({ text, regions, cities, devices: present.devices, placeOf, standing: (place) => standing(regions, place) });
  const flyTo = (place) => camera.fly(place[0], millerY(place[1]), Math.max(CLOSE, camera.scale));
  const search = searchField(cities, find, {
    fly(found) {
      if (found.place) flyTo(found.place);
      if (found.devices.length) choose(found.devices.map(({ name }) => name));
      say(found.place ? `${found.name}` : `${found.name || "no region"} stands in no known place`);
    },
    add: (found) => { flyTo(found.place); add(found.name); },
    move: (found) => tell.devicesMoved([...chosen()], found.name),
    movable: () => chosen().size > 0,
    leave: () => root.focus({ preventScroll: true }),
  });

  function fit() {
    const placed = regions.filter(({ place, devices }) => place && devices.length);
    const below = regions.some(({ place, devices }) => !place && devices.length) ? 70 : 0;
    let margins = [40, 40, 40, 40 + below];
    for (let round = 0; round < 3 && box.clientWidth; round++) {
      camera.fit(placed.map(({ place }) => place), margins);
      if (placed.length) margins = overhang(layout(box.clientWidth, box.clientHeight).groups.filter(({ devices }) => devices.length), below);
    }
  }
  const remove = () => {
    const gone = [...chosen()];
    const words = gone.length ? `${count(gone.length, "device")} deleted` : `${bare} deleted`;
    edit(gone.length ? removeDevices(present, gone) : removeRegions(present, [bare]), []);
    bare = null;
    say(words);
  };
  const can = (what) => (what === "remove" ? chosen().size > 0 || bare !== null : model.get(`can_${what}`));
  const bar = toolbar(root, {
    select: () => use("select"), add: () => use("add"), drop: () => { hand.cancel(); use("select"); choose([]); }, remove,
    undo: () => model.send({ kind: "undo" }), redo: () => model.send({ kind: "redo" }), all: () => choose(present.devices.map(({ name }) => name)),
    fit, closer: () => camera.zoom(1.5), wider: () => camera.zoom(1 / 1.5), pan: camera.pan,
  }, () => tool, can, search);

  function use(next) { tool = next; say(""); refresh(); }

  /** The document or the places changed: regions and lines are worked out anew. */
  function understand() {
    regions = regionsOf(present, placeOf);
    const drawn = new Set(regions.map(({ name }) => name));
    if (bare !== null && !regions.some(({ name, devices }) => name === bare && !devices.length)) bare = null;
    if (pinned && !(drawn.has(pinned.a) && drawn.has(pinned.b))) pinned = null;
    lines = linesBetween(present, model.get("filled"), regions.filter(({ place, name }) => place && name).map(({ name }) => name));
    refresh();
  }

  function layout(width, height) {
    const link = linkRegions();
    const wanted = new Set([...(link ?? []), ...(pinned ? [pinned.a, pinned.b] : [])]);
    return placementOf({ document: present, regions, lines, camera, width, height, nameWidth, shown, chosen: wanted });
  }

  function paint(context, width, height, theme) {
    const selected = chosen();
    const { press, pointer } = hand;
    const link = linkRegions();
    placement = layout(width, height);
    const hit = pointer && !press && !camera.flying ? under(placement, pointer.x, pointer.y) : null;
    const carried = press && (press.kind === "devices" || press.kind === "region");
    const goal = (carried || (tool === "add" && pointer && !press)) ? target(placement, cities, camera, ...(press?.now ?? [pointer.x, pointer.y])) : null;
    const is = (line, a, b) => line && ((line.a === a && line.b === b) || (line.a === b && line.b === a));
    const stands = (a, b) => is(hit?.kind === "line" ? hit : null, a, b) || is(pinned, a, b) || is(link && { a: link[0], b: link[1] }, a, b)
      || (hit?.kind === "region" && (hit.name === a || hit.name === b));
    const some = Boolean(pinned || link || hit?.kind === "line" || (hit?.kind === "region" && !hit.group.tray));
    const style = { look, isChosen: (name) => selected.has(name), aimed: goal?.known ? goal.name : null, pointed: hit?.name, bare };

    paintLand(context, land, camera, width, theme);
    const out = paintLines(context, placement, theme, stands, !some);
    const boxes = placement.groups.map(({ x, y, half, radius }) => [x - half[0], y - radius - 16, x + half[0], y + radius]);
    paintCities(context, freeCities(cities, placement.groups), camera, { width, height: placement.lost.top, theme, boxes, eager: tool === "add" || Boolean(carried), without: goal?.name });
    paintGroups(context, placement, theme, style);
    paintNumbers(context, placement, theme, out);
    paintTray(context, placement, theme, style);
    if (goal) paintTarget(context, goal, theme);
    if (carried) {
      const devices = present.devices.filter(({ name }) => press.names.includes(name));
      paintDragged(context, devices, ...press.now, Math.max(placement.dot, 14), theme, look);
    }
    if (press?.kind === "box") paintBox(context, press);
    showTip(hit, goal, carried);
    box.style.cursor = press ? "grabbing" : tool === "add" ? "copy" : hit ? "pointer" : "grab";
  }

  function showTip(hit, goal, carried) {
    const text = carried ? (goal ? `${count(hand.press.names.length, "device")} to ${goal.name}${goal.known ? "" : ", a new region"}` : "")
      : tool === "add" ? (goal ? `add to ${goal.name}${goal.known ? "" : ", a new region"}` : "") : hit ? describe(hit, { document: present, lines, stages: stages() }) : "";
    const spot = hand.press ? { x: hand.press.now[0], y: hand.press.now[1] } : hand.pointer;
    if (text && spot) tip.show(text, spot.x, spot.y); else tip.hide();
  }

  function linkRegions() {
    const ends = model.get("selected_link");
    if (ends.length !== 2) return null;
    const [a, b] = ends.map((name) => present.devices.find((device) => device.name === name)?.region);
    return a && b && a !== b && placeOf(a) && placeOf(b) ? [a, b] : null;
  }

  function refresh() {
    bar.update();
    const devices = present.devices.length;
    const placed = regions.filter(({ place, devices: own }) => place && own.length);
    empty.hidden = placed.length > 0;
    empty.textContent = devices
      ? "No device stands in a known place: drag devices from below onto a city, or name their region after one"
      : "Press D and click near a city to put a device there, or type a city's name above";
    root.setAttribute("aria-label", `World map: ${count(devices, "device")} in ${count(placed.length, "city", "cities")}`);
    root.dataset.devices = String(devices);
    legend.replaceChildren(...legendOf(present, lines, stages(), gpuColor));
    showStatus();
    draw();
  }

  function showStatus() {
    const problem = model.get("problem");
    const selected = chosen().size;
    const on = regions.filter(({ place, devices }) => place && devices.length);
    const inventory = `${count(present.devices.length, "device")} in ${count(on.length, "place")}`;
    status.textContent = problem || [note, selected ? `${selected} selected` : "", model.get("summary") || inventory].filter(Boolean).join(" · ");
    status.classList.toggle("dtfm-problem", Boolean(problem));
  }

  /** Another hand changed the document: Python, or another view. Our own echo is the same document. */
  function reload() {
    const next = complete(model.get("document"));
    if (same(next, present)) return;
    const names = (document) => document.devices.map(({ region }) => region).filter(Boolean);
    const before = new Set(names(present));
    present = next;
    note = "";
    understand();
    if (!names(next).some((name) => before.has(name)) || (!camera.touched && outOfSight(names(next)))) fit();
  }

  const outOfSight = (names) => [...new Set(names)].map(placeOf).filter(Boolean).some(([longitude, latitude]) => {
    const [x, y] = camera.toScreen(camera.turned(longitude), millerY(latitude));
    return x < 0 || y < 0 || x > box.clientWidth || y > box.clientHeight;
  });

  const follow = () => {
    const link = linkRegions();
    if (link && outOfSight(link)) fit();
    refresh();
  };
  onTraits(model, ["document"], reload, cleanUp);
  onTraits(model, ["places", "filled"], understand, cleanUp);
  onTraits(model, ["selected", "highlight", "gpus"], refresh, cleanUp);
  onTraits(model, ["selected_link"], follow, cleanUp);
  onTraits(model, ["problem", "summary"], showStatus, cleanUp);
  onTraits(model, ["can_undo", "can_redo"], refresh, cleanUp);
  const resize = () => { box.style.height = `${model.get("height")}px`; };
  onTraits(model, ["height"], resize, cleanUp);

  /** Where a device, a region or a city is in the box, in pixels: for whoever points at it from outside, as tests do. */
  root.whereIs = (name) => {
    const group = placement?.groups.find((one) => one.name === name);
    const dot = placement?.dots.find(({ device }) => device.name === name);
    const place = cityOf.get(name);
    if (dot) return [dot.x, dot.y];
    return group ? [group.x, group.y - group.radius - 8] : place ? camera.toScreen(camera.turned(place[0]), millerY(place[1])) : null;
  };
  box.append(empty);
  root.append(bar.element, box, legend, status);
  el.append(root);
  resize();
  understand();
  onResize(box, () => { if (!camera.touched) fit(); }, cleanUp);
  fit();
  return cleanUp.run;
}

export default { render };
