// A plan's groups: columns in path order, the paper's five steps, or weights. Devices can be dragged between groups.
import { onShine, shine } from "shared/bus.js";
import { onTheme } from "shared/theme.js";
import { cleanUps, focusedIn, frame, h, onResize, onTraits, oncePerFrame, targetOf } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { seconds } from "shared/axis.js";
import { view } from "shared/view.js";
import { makeDrag } from "./page/drag.js";
import { makeDrawing } from "./page/drawing.js";
import { linksIn, linkUnder, paintLinks } from "./page/links.js";
import { cellUnder, paintMatrix } from "./page/matrix.js";
import { showDevices, showEdge, showGroup, showHint } from "./page/details.js";
import { makePath } from "./page/path.js";
import { MOST_IN_RING } from "./page/places.js";
import { deviceWords, edgeWords, groupWords } from "./page/words.js";
import { there } from "shared/there.js";
/** @import { Pointed, Render } from "shared/types.d.ts" */
/** @import { Data, Grid, Link, Pair, Pressed, Step, Traits } from "./types.d.ts" */

const NONE = -1;
/** @type {(keyof Traits)[]} */
const DRAWN = ["groups", "weights", "matchings", "idle", "network", "cost"];
/** @type {(keyof Traits)[]} */
const MARKED = ["selected", "selected_group", "selected_edge", "other_edge", "other_matching"];

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  const title = h("strong");
  const hint = h("span", { class: "dtfm-groups-hint" });
  const box = h("div", { class: "dtfm-box" });
  const linkBox = h("div", { class: "dtfm-groups-links" });
  const matrixBox = h("div", { class: "dtfm-groups-matrix", tabindex: "0", role: "group" });
  const side = h("div", { class: "dtfm-groups-side", "aria-live": "polite", tabindex: "0" });
  const empty = h("div", { class: "dtfm-empty" });
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const root = frame("dtfm-groups", "Device groups");
  const drawing = makeDrawing();
  const path = makePath({
    state: () => ({ canMove: model.get("can_move"), offers: model.get("offers") }),
    choose: { device: chooseDevice, group: chooseGroup, edge: (hop) => chooseEdge([hop, hop + 1]) },
    point: (what) => shine(root, what),
    send: (content) => model.send(content),
  });
  box.append(linkBox, drawing.root, matrixBox, path.root, empty);
  root.append(h("div", { class: "dtfm-heading" }, title, hint), h("div", { class: "dtfm-groups-main" }, box, side), caption);
  el.append(root);

  /** @type {HTMLElement} */
  const closer = h("button", { class: "dtfm-groups-close", type: "button", "aria-label": "Close the list", title: "Close", onclick: () => choose({}) }, "×");

  let /** @type {Link[]} */ links = [],
    /** @type {Grid | null} */ grid = null,
    size = "";
  /** @type {Data} */
  let data = gathered();
  const mode = () => model.get("mode");
  /** @type {() => Step} */
  const step = () => (mode() === "weights" ? "e" : model.get("step"));
  const isPath = () => mode() === "path";
  const isMatrix = () => mode() === "weights" || (mode() === "ring" && data.groups.length > MOST_IN_RING && step() >= "d");
  const tip = tooltip(box);
  const linkCanvas = sharpCanvas(linkBox, (context, width, height, theme) => paintLinks(context, links, theme), cleanUp);
  const matrixCanvas = sharpCanvas(
    matrixBox,
    (context, width, height, theme) => {
      grid = isMatrix() ? paintMatrix(context, width, height, { ...data, order: order(), step: step(), marked: marked() }, theme) : null;
    },
    cleanUp,
  );
  const drag = makeDrag(box, drawing, {
    state: () => ({ step: step(), canMove: model.get("can_move"), offers: model.get("offers"), places: data.places }),
    send: (content) => model.send(content),
    press,
    tip,
  });

  /** @type {() => Data} */
  function gathered() {
    const groups = model.get("groups");
    /** @type {Data["places"]} */
    const places = new Map(groups.flatMap(({ devices }, stage) => devices.map((name, replica) => [name, { stage, replica }])));
    const hop = model.get("selected_edge"),
      other = model.get("other_edge");
    const edge = hop >= 0 && hop < groups.length - 1 ? [hop, hop + 1] : other.length === 2 && other.every((k) => k < groups.length) ? other : null;
    const pairs = !edge ? [] : hop >= 0 ? (model.get("matchings")[hop] ?? []) : model.get("other_matching");
    const slowest = pairs.reduce((worst, pair) => (worst && worst[2] >= pair[2] ? worst : pair), /** @type {Pair | null} */ (null));
    return {
      groups,
      places,
      edge,
      pairs,
      link: slowest ? [slowest[0], slowest[1]] : undefined,
      weights: model.get("weights"),
      idle: model.get("idle"),
      network: model.get("network"),
      selected: model.get("selected"),
      group: model.get("selected_group"),
      cost: model.get("cost"),
    };
  }

  /** Stages of what is selected. */
  const marked = () => new Set(data.selected.map((name) => data.places.get(name)?.stage).filter((stage) => stage !== undefined));

  /** By letter in (d), in path order in (e). */
  function order() {
    const stages = data.groups.map((_, stage) => stage);
    /** @type {(stage: number) => string} */
    const key = (stage) => data.groups[stage].letter ?? "";
    if (step() === "d") stages.sort((a, b) => key(a).length - key(b).length || key(a).localeCompare(key(b)) || a - b);
    return stages;
  }

  /** @type {(chosen: { selected?: string[], group?: number, edge?: number[] | null }) => void} */
  function choose({ selected = [], group = NONE, edge = null }) {
    const hop = edge && Math.abs(edge[0] - edge[1]) === 1;
    model.set("selected", selected);
    model.set("selected_group", group);
    model.set("selected_edge", hop ? Math.min(...edge) : NONE);
    model.set("other_edge", edge && !hop ? [...edge].sort((a, b) => a - b) : []);
    model.save_changes();
    data = gathered(); // a second key before the next frame goes on from here
    mark();
  }

  /** @type {(name: string, adding: boolean) => void} */
  function chooseDevice(name, adding) {
    const now = data.selected;
    if (adding) choose({ selected: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] });
    else choose({ selected: now.length === 1 && now[0] === name && data.group === NONE ? [] : [name] });
  }

  /** @type {(stage: number) => void} */
  function chooseGroup(stage) {
    choose(stage === data.group ? {} : { group: stage, selected: [...data.groups[stage].devices] });
  }

  /** @type {(edge: number[]) => void} */
  function chooseEdge(edge) {
    choose(data.edge?.[0] === edge[0] && data.edge[1] === edge[1] ? {} : { edge });
  }

  /** @type {(target: Pressed, event: { shiftKey: boolean, ctrlKey: boolean, metaKey: boolean }) => void} */
  function press(target, event) {
    if (target.device) chooseDevice(target.device, event.shiftKey || event.ctrlKey || event.metaKey);
    else if (target.stage !== undefined && target.stage >= 0) chooseGroup(target.stage);
    else if (target.edge) chooseEdge([Number(target.edge.dataset.a), Number(target.edge.dataset.b)]);
    else choose({});
  }

  drawing.root.addEventListener("pointermove", (event) => {
    if (drag.dragging()) return;
    const { left, top } = drawing.root.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const found = drawing.under(x, y);
    const edge = targetOf(event).closest?.(".edge");
    const movable = found?.device && model.get("can_move") && step() !== "a";
    drawing.root.style.cursor = movable ? "grab" : found?.device || (found && found.stage >= 0) || edge ? "pointer" : "default";
    const words = found?.device
      ? deviceWords(found.device, data)
      : found && found.stage >= 0
        ? groupWords(data.groups[found.stage], step())
        : edge
          ? edge.getAttribute("aria-label")
          : step() === "a"
            ? linkUnder(links, x, y)?.words
            : null;
    if (words) tip.show(words, x, y);
    else tip.hide();
    pointAt(found?.device ? { devices: [found.device] } : found && found.stage >= 0 ? { stage: found.stage } : null);
  });
  drawing.root.addEventListener("pointerleave", () => {
    if (drag.dragging()) return;
    tip.hide();
    pointAt(null);
  });

  let pointed = "null";
  /**
   * Tells the other views of the lab, once for each thing.
   * @type {(what: Pointed) => void}
   */
  function pointAt(what) {
    if (JSON.stringify(what) === pointed) return;
    pointed = JSON.stringify(what);
    shine(root, what);
  }

  matrixBox.addEventListener("pointermove", (event) => {
    const cell = grid && cellUnder(grid, event.offsetX, event.offsetY);
    matrixBox.style.cursor = cell ? "pointer" : "default";
    if (!cell) return tip.hide();
    const [a, b] = cell;
    tip.show(a === b ? groupWords(data.groups[a], step()) : edgeWords(data.groups, a, b, data.weights[a]?.[b] ?? NaN, step()), event.offsetX, event.offsetY);
  });
  matrixBox.addEventListener("pointerleave", tip.hide);
  matrixBox.addEventListener("click", (event) => {
    const cell = grid && cellUnder(grid, event.offsetX, event.offsetY);
    if (!cell) choose({});
    else if (cell[0] === cell[1]) chooseGroup(cell[0]);
    else chooseEdge([...cell].sort((a, b) => a - b));
  });

  root.addEventListener("keydown", (event) => {
    const { key } = event;
    const focused = targetOf(event).dataset ?? {};
    const handled = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (key === "Escape") {
      if (drag.dragging()) drag.cancel();
      else if (path.dragging()) path.cancel();
      else choose({});
      event.stopPropagation();
    } else if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "z" && model.get("can_move")) {
      model.send({ kind: event.shiftKey ? "redo" : "undo" });
      handled();
    } else if (!isPath() && (key === "Enter" || key === " ") && focused.key) {
      press({ device: focused.device, stage: focused.stage === undefined ? NONE : Number(focused.stage), edge: targetOf(event).closest(".edge") }, event);
      handled();
    } else if (key.startsWith("Arrow") && focused.device) {
      walk(focused.device, key);
      handled();
    } else if (key.startsWith("Arrow") && event.target === matrixBox && data.groups.length > 1) {
      const by = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
      const hop = Math.min(data.groups.length - 2, Math.max(0, (data.edge ? Math.min(...data.edge) : by > 0 ? -1 : 1) + by));
      choose({ edge: [hop, hop + 1] });
      handled();
    }
  });

  /**
   * Along the pipeline with left and right, within the group with up and down.
   * @type {(name: string, key: string) => void}
   */
  function walk(name, key) {
    const place = data.places.get(name);
    if (!place) return;
    /** @type {(value: number, by: number, n: number) => number} */
    const turn = (value, by, n) => (value + by + n) % n;
    const by = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    const group = data.groups[sideways ? turn(place.stage, by, data.groups.length) : place.stage].devices;
    const next = group[sideways ? place.replica : turn(place.replica, by, group.length)];
    if (isPath()) return path.roveTo(next);
    drawing.roveTo(next);
    there(drawing.element(next)).focus({ preventScroll: true });
  }

  function hintText() {
    const n = data.groups.length;
    if (!n) return "";
    if (isPath()) return model.get("can_move") ? "in path order · drag a device: each column shows what the move would cost" : "in path order";
    if (isMatrix()) return `${step() === "d" ? "by letter" : "in path order"} · seconds between any two groups`;
    if (step() === "d" && n > 1) {
      const known = data.weights.flatMap((row, a) => row.filter((value, b) => b > a && isFinite(value)));
      const [low, high] = [Math.min(...known), Math.max(...known)];
      return high > low * (1 + 1e-9) ? `an edge weighs ${seconds(low)} (thin) to ${seconds(high)} (thick)` : `every edge weighs ${seconds(low)}`;
    }
    return {
      a: "wide lines are fast links",
      b: "at a group: seconds of averaging, the slowest has a thick edge",
      c: "every two groups are joined by an edge",
      d: "",
      e: "in path order · at a line: seconds of the hop",
    }[step()];
  }

  const draw = oncePerFrame(drawNow, cleanUp);
  const mark = oncePerFrame(markNow, cleanUp);

  function drawNow() {
    data = gathered();
    const height = model.get("height");
    root.classList.toggle("fills", !height);
    for (const element of [box, side]) element.style.height = height ? `${height}px` : "";
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    empty.textContent = model.get("hint");
    empty.hidden = data.groups.length > 0;
    root.setAttribute("aria-label", `${model.get("title")}: ${data.groups.length} device groups in path order`);
    root.dataset.groups = String(data.groups.length);
    root.dataset.mode = mode(); // before anything is measured
    const { clientWidth: width, clientHeight: high } = box;
    if (width && high) {
      // a notebook takes cells out of the page while they are scrolled away
      const focused = focusedIn(root)?.dataset.key ?? null;
      if (size !== `${width} x ${high}`) standStill();
      size = `${width} x ${high}`;
      if (isPath()) path.draw(data);
      else {
        drawing.draw(data, width, high);
        links = linksIn(data.network, drawing.placed());
      }
      if (focused) box.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
    showStep();
  }

  /** A change of size is not animated. */
  function standStill() {
    drawing.root.classList.add("still");
    requestAnimationFrame(() => requestAnimationFrame(() => drawing.root.classList.remove("still")));
  }

  function showStep() {
    root.dataset.mode = mode();
    root.dataset.step = step();
    root.dataset.matrix = String(isMatrix());
    hint.textContent = hintText();
    tip.hide();
    drag.show();
    if (size && !isPath()) drawing.show(step());
    linkCanvas.draw();
    matrixCanvas.draw();
    markNow();
  }

  function markNow() {
    data = gathered();
    drawing.set(data);
    if (size && isPath()) path.mark(data);
    if (size && !isPath()) {
      drawing.mark();
      drawing.point(null);
    }
    if (isMatrix()) matrixCanvas.draw();
    matrixBox.setAttribute("aria-label", `Seconds between any two of ${data.groups.length} groups; arrow keys walk along the path`);
    const actions = { choose: chooseDevice, point: drawing.point };
    const selected = data.selected.filter((name) => data.places.has(name) || data.idle.includes(name));
    side.hidden = !data.groups.length || (root.classList.contains("fills") ? !data.edge : isPath()); // elsewhere the inspector says the rest
    if (data.edge) showEdge(side, { ...data, step: step(), weight: data.weights[data.edge[0]]?.[data.edge[1]] }, actions);
    else if (data.group >= 0 && data.group < data.groups.length) showGroup(side, { ...data, step: step() }, actions);
    else if (selected.length) showDevices(side, { ...data, selected }, actions);
    else showHint(side, { step: step(), isMatrix: isMatrix(), canMove: model.get("can_move") });
    if (root.classList.contains("fills")) side.prepend(closer);
  }

  onTraits(model, [...DRAWN, "title", "caption", "hint", "height"], draw, cleanUp);
  onTraits(model, ["step"], oncePerFrame(showStep, cleanUp), cleanUp);
  onTraits(model, ["mode"], draw, cleanUp);
  onShine(
    root,
    (what) => {
      path.light(what);
      drawing.light(what);
    },
    cleanUp,
  );
  onTheme(draw, cleanUp);
  onTraits(model, MARKED, mark, cleanUp);
  onTraits(
    model,
    ["offers"],
    () => {
      drag.show();
      if (isPath()) path.showPrices();
    },
    cleanUp,
  );
  onResize(
    box,
    () => {
      if (box.clientWidth && `${box.clientWidth} x ${box.clientHeight}` !== size) draw();
    },
    cleanUp,
  );
  drawNow();
  return cleanUp.run;
}

export default view(render);
