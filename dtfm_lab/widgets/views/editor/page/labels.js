// Labels of lines, "0.52 Gbit/s, 96 ms": on their line, off everything else, and sliders of what they say.
import { linkDrag, linkLabel } from "shared/link_drag.js";
import { linkText } from "shared/links.js";
import { h } from "shared/dom.js";
import { overlap, placeOn } from "./geometry.js";
import { there } from "shared/there.js";
/** @import { CleanUps, Conditions, Model } from "shared/types.d.ts" */
/** @import { Laid, LabelPlace, SceneLine, Traits } from "../types.d.ts" */

/** @typedef {{ line: SceneLine, label: ReturnType<typeof linkLabel>, drag: { dragging: () => boolean }, done: () => void }} Label */

const MOST = 26; // more are shown when they are pointed at
const MOST_OWN = 20; // drawn lines, above which only those of the plan have labels
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74];
const [MANY_ALIKE, ENOUGH] = [8, 3]; // of this many equal lines, how many get a label
const [HEIGHT, BRIEF] = [32, 18];
const PER_CHARACTER = 6.3;
const [ON_LINE, OFF_MIDDLE] = [3, 4]; // what it costs to cover another line, to stand off the middle

/**
 * A layer of labels over the canvas. `read(line)` returns the conditions of a line now, `set(line, conditions)` sets
 * them without saving, `press(line)` selects it, `point(line or null)` says what is pointed at.
 * @type {(model: Model<Traits>, on: { read: (line: SceneLine) => Conditions, set: (line: SceneLine, conditions: Conditions) => void, press: (line: SceneLine, event: Event) => void, point: (line: SceneLine | null) => void }, cleanUp: CleanUps) => { element: HTMLElement, show: (lines: SceneLine[], places: Map<string, LabelPlace>, selected: (line: SceneLine) => boolean) => void, held: () => string, dragging: () => boolean }}
 */
export function labelLayer(model, { read, set, press, point }, cleanUp) {
  const element = h("div", { class: "dtfm-labels" });
  /** @type {Map<string, Label>} */
  const held = new Map(); // id -> {line, label, drag, done}

  /** @type {(line: SceneLine) => Label} */
  function make(line) {
    const label = linkLabel(line.ends.join(line.oneWay ? " → " : " – "));
    /** @type {(() => void)[]} */
    const steps = [];
    const one = /** @type {Label} */ ({
      line,
      label,
      done: () => {
        steps.forEach((step) => step());
        label.element.remove();
      },
    });
    one.drag = linkDrag(
      label.element,
      model,
      {
        read: () => read(one.line),
        set: (conditions) => set(one.line, conditions),
        show: (conditions) => label.write(conditions),
        press: (event) => press(one.line, event),
      },
      { add: (step) => steps.push(step) },
    );
    label.element.addEventListener("pointerenter", () => point(one.line));
    label.element.addEventListener("pointerleave", () => point(null));
    element.append(label.element);
    held.set(line.id, one);
    return one;
  }
  cleanUp.add(() => {
    for (const one of held.values()) one.done();
  });

  /**
   * Shows labels of `wanted` lines at {id: {x, y}}; a label that is dragged or has the focus stays.
   * @type {(lines: SceneLine[], places: Map<string, LabelPlace>, selected: (line: SceneLine) => boolean) => void}
   */
  function show(lines, places, selected) {
    const drawn = new Set(lines.map((line) => line.id));
    for (const [id, one] of held) {
      if (places.has(id) || one.drag.dragging() || (drawn.has(id) && one.label.element === /** @type {Document} */ (element.getRootNode()).activeElement))
        continue;
      one.done();
      held.delete(id);
    }
    for (const line of lines) {
      const place = places.get(line.id);
      if (!place) continue;
      const one = held.get(line.id) ?? make(line);
      one.line = line;
      if (!one.drag.dragging()) one.label.write(line, line.about ? "≈ " : "");
      one.label.element.setAttribute("aria-current", String(selected(line)));
      one.label.element.classList.toggle("dtfm-brief", Boolean(place.brief));
      one.label.element.style.transform = `translate(${Math.round(place.x)}px, ${Math.round(place.y)}px) translate(-50%, -50%)`;
    }
  }

  /** The line whose label is dragged or has the focus, or empty. */
  const heldLine = () =>
    [...held.values()].find((one) => one.drag.dragging() || one.label.element === /** @type {Document} */ (element.getRootNode()).activeElement)?.line.id ?? "";

  return { element, show, held: heldLine, dragging: () => [...held.values()].some((one) => one.drag.dragging()) };
}

/**
 * {id: {x, y, brief}}: where labels stand. Those of the plan come first, then others; one that finds no room says its
 * bandwidth alone, `brief`, if that fits, and is left out else. What is selected or pointed at moves no label, or the label
 * would run away from the pointer that wants to pull it: a label that stands is said in full where it is, and one that
 * does not gets the best place that is left.
 * @type {(lines: SceneLine[], laid: Laid, room: { width: number, height: number, top: number, bottom: number }, isWanted: (line: SceneLine) => boolean) => Map<string, LabelPlace>}
 */
export function placeLabels(lines, laid, { width, height, top, bottom }, isWanted) {
  /** @type {Map<string, LabelPlace>} */
  const places = new Map();
  /** @type {import("../types.d.ts").Rectangle[]} */
  const placed = [];
  const nOwn = lines.filter((line) => line.own || line.kind === "pair").length;
  /** @type {(line: SceneLine) => number} */
  const rank = (line) =>
    line.uses.has("hop") && line.across
      ? 1
      : line.own && line.uses.size
        ? 2
        : line.kind === "pair" && line.uses.size
          ? 3
          : line.uses.size
            ? 6
            : line.own
              ? 4
              : 5;
  /** @type {(line: SceneLine) => boolean} */
  const worth = (line) => (line.uses.size ? line.across || line.own : nOwn <= MOST_OWN && (line.own || line.kind === "pair"));
  const ways = new Map([...laid.curves].map(([id, way]) => [id, Array.from({ length: 17 }, (_, at) => placeOn(way, at / 16))]));
  const chosen = lines.filter(worth).sort((one, other) => rank(one) - rank(other));
  /** @type {(line: SceneLine) => string} */
  const text = (line) => linkText(line.bandwidth_gbps, line.latency_ms).join();
  /** @type {Map<string, { all: number, said: number }>} */
  const alike = new Map(); // {text: how many say it}, and how many have said it
  for (const line of chosen) alike.set(text(line), { all: (alike.get(text(line))?.all ?? 0) + 1, said: 0 });
  for (const line of chosen) {
    const { all, said } = there(alike.get(text(line)));
    if (placed.length >= MOST || (all > MANY_ALIKE && said >= ENOUGH)) continue;
    if (place(line, false)) alike.set(text(line), { all, said: said + 1 });
  }
  for (const line of lines.filter(isWanted)) {
    const standing = places.get(line.id);
    if (standing) standing.brief = false;
    else place(line, true);
  }
  return places;

  /** @type {(line: SceneLine, anywhere: boolean) => boolean} */
  function place(line, anywhere) {
    const way = laid.curves.get(line.id);
    if (!way) return false;
    const [gbps, ms] = linkText(line.bandwidth_gbps, line.latency_ms);
    const wide = 18 + PER_CHARACTER * Math.max(gbps.length, ms.length) + (line.about ? 10 : 0);
    /** @type {{ cost: number, at: { x: number, y: number }, box: import("../types.d.ts").Rectangle, brief: boolean } | null} */
    let best = null;
    for (const [brief, share] of [
      ...SHARES.map((share) => /** @type {[boolean, number]} */ ([false, share])),
      ...SHARES.map((share) => /** @type {[boolean, number]} */ ([true, share])),
    ]) {
      if (brief && best) break;
      const at = placeOn(way, share);
      const [halfWide, halfHigh] = brief ? [6 + (PER_CHARACTER * gbps.length) / 2, BRIEF / 2] : [wide / 2, HEIGHT / 2];
      const box = { x1: at.x - halfWide, x2: at.x + halfWide, y1: at.y - halfHigh, y2: at.y + halfHigh };
      const outside = box.x1 < 2 || box.x2 > width - 2 || box.y1 < top || box.y2 > height - bottom;
      const blocked = outside || placed.some((one) => overlap(box, one, 3)) || laid.taken.some((one) => overlap(box, one, 3));
      if (blocked && !anywhere) continue;
      let crossed = 0;
      for (const [id, points] of ways) if (id !== line.id && points.some((p) => p.x > box.x1 && p.x < box.x2 && p.y > box.y1 && p.y < box.y2)) crossed++;
      const cost = ON_LINE * crossed + OFF_MIDDLE * Math.abs(share - 0.5) + (blocked ? 100 : 0);
      if (!best || cost < best.cost) best = { cost, at, box, brief };
    }
    if (!best) return false;
    const half = (best.box.x2 - best.box.x1) / 2 + 2;
    const y = Math.min(height - bottom - HEIGHT / 2, Math.max(top + HEIGHT / 2, best.at.y));
    places.set(line.id, { x: Math.min(width - half, Math.max(half, best.at.x)), y, brief: best.brief });
    placed.push(best.box);
    return true;
  }
}
