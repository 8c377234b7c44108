// Devices, groups and edges as SVG. A step only says where things stand and what is lit: the style sheet moves them.
import { svg } from "shared/dom.js";
import { seconds } from "shared/axis.js";
import { shortened } from "shared/text.js";
import { GREY, readTheme, stageColor } from "shared/theme.js";
import { layout, MOST_IN_RING } from "./places.js";
import { deviceWords, edgeWords, groupWords, letterOf } from "./words.js";
import { there } from "shared/there.js";
/** @import { Pointed } from "shared/types.d.ts" */
/** @import { Data, Dot, Ground, Group, Placed, Step, Under } from "../types.d.ts" */

const NAMED_UP_TO = 16; // devices that are called by name in the picture
const MOST_LETTERS = 14;
const LABELLED_UP_TO = 6; // groups between which every edge says its weight
const FEW = 8; // groups whose edges can all be told apart
const LIGHTS_UP_S = 1.2; // the whole path, hop by hop
const SHOWN_PIPELINES = 4;

export function makeDrawing() {
  const layers = Object.fromEntries(
    ["regions", "edges", "nodes", "weights", "lines", "devices", "names", "over"].map((name) => [name, svg("g", { class: name })]),
  );
  const root = svg("svg", { class: "dtfm-steps", role: "group", "aria-label": "Devices, groups and edges" }, ...Object.values(layers));
  /** @type {Map<string, SVGGElement>} */
  const drawn = new Map(); // name -> element: devices stay the same elements, so that they glide
  /** @type {Data} any: null until the first plan is drawn, before which nothing asks for it */
  let data = /** @type {any} */ (null);
  /** @type {Placed} */
  let placed = /** @type {any} */ (null);
  /** @type {Step} */
  let step = "e";
  /** @type {(stage: number) => string} */
  const paintOf = (stage) => stageColor(stage, data.groups.length, readTheme(root).dark);

  /**
   * Another plan, or another size.
   * @type {(next: Data, width: number, height: number) => void}
   */
  function draw(next, width, height) {
    data = next;
    placed = layout(data, width, height);
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const tangled = data.groups.length > MOST_IN_RING;
    root.style.setProperty("--pace", `${Math.min(0.16, LIGHTS_UP_S / data.groups.length)}s`);
    root.classList.toggle("labelled", data.groups.length <= LABELLED_UP_TO);
    layers.regions.replaceChildren(...placed.regions.map(region));
    const [lines, weights] = tangled ? [[], []] : edges();
    layers.edges.replaceChildren(...lines);
    layers.weights.replaceChildren(...weights); // over the nodes, which would hide those of short edges
    layers.nodes.replaceChildren(...(placed.strip ? [strip()] : []), ...data.groups.map(node));
    drawDevices();
    show(step);
  }

  /** @type {(ground: Ground) => SVGElement} */
  const region = ({ x, y, half: [a, b], round, name }) =>
    svg(
      "g",
      { class: "region" },
      svg("rect", { x: x - a, y: y - b, width: 2 * a, height: 2 * b, rx: round ? a : 8 }),
      svg("text", { class: "halo", x, y: y - b - 5, "text-anchor": "middle" }, name || "no region"),
    );

  const strip = () =>
    svg(
      "g",
      { class: "strip" },
      svg("rect", { ...placed.strip, rx: 6 }),
      svg("text", { x: there(placed.strip).x + 10, y: there(placed.strip).y + there(placed.strip).height / 2 + 4 }, "idle"),
    );

  /** @type {() => SVGElement[][]} */
  function edges() {
    const { groups, weights } = data;
    /** @type {[number, number][]} */
    const pairs = [];
    for (let a = 0; a < groups.length; a++) for (let b = a + 1; b < groups.length; b++) pairs.push([a, b]);
    const known = pairs.map(([a, b]) => weights[a]?.[b]).filter(isFinite);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const others = pairs.filter(([a, b]) => b > a + 1),
      path = pairs.filter(([a, b]) => b === a + 1);
    const [heaviest, crowd] = groups.length > FEW ? [3.2, 1.8] : [5, 1]; // pixels, and how far light edges stand back
    /** @type {{ x: number, y: number }[]} */
    const taken = [];
    const texts = [...path, ...others].map(([a, b]) => {
      const { x, y } = labelPlace(placed.groups[a], placed.groups[b], b === a + 1, taken);
      return svg(
        "text",
        { class: `halo ${b === a + 1 ? "path" : "other"}`, "data-a": a, "data-b": b, x, y: y + 4, "text-anchor": "middle", style: `--turn:${a}` },
        seconds(data.weights[a]?.[b] ?? NaN),
      );
    });
    const lines = [...others, ...path].map(([a, b]) => {
      const weight = weights[a]?.[b] ?? NaN;
      const share = high > low && isFinite(weight) ? (weight - low) / (high - low) : 0.5;
      const [from, to] = [placed.groups[a], placed.groups[b]];
      const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
      const onPath = b === a + 1;
      return svg(
        "g",
        {
          class: `edge ${onPath ? "path" : "other"}`,
          "data-a": a,
          "data-b": b,
          "data-key": `edge-${a}-${b}`,
          role: "button",
          tabindex: onPath ? "0" : "-1",
          style: `--width:${0.8 + heaviest * share}px;--ink:${0.14 + 0.66 * share ** crowd};--turn:${a}`,
        },
        svg("line", { class: "hit", ...ends }),
        svg("line", { class: "ink", ...ends }),
        onPath ? svg("line", { class: "lit", pathLength: "1", ...ends }) : null,
      );
    });
    return [lines, texts];
  }

  /** @type {(group: Group, stage: number) => SVGElement} */
  function node(group, stage) {
    const { x, y } = placed.groups[stage];
    const costs = data.groups.map(({ cost_s }) => cost_s);
    const [low, high] = [Math.min(...costs), Math.max(...costs) * (1 - 1e-9)];
    const slowest = low < high && group.cost_s >= high; // of groups that are all alike, none is
    return svg(
      "g",
      {
        class: `node${slowest ? " slowest" : ""}`,
        "data-stage": stage,
        "data-key": `group-${stage}`,
        role: "button",
        tabindex: "0",
        style: `--stage:${paintOf(group.stage)}`,
      },
      svg("circle", { cx: x, cy: y }),
      svg("text", { class: "mark", x, y: y + 4.5, "text-anchor": "middle" }),
      svg("g", { class: "label" }, svg("text", { class: "halo" }), svg("text", { class: "halo soft" })),
    );
  }

  function drawDevices() {
    const all = [...placed.devices.a.keys()];
    const known = new Set(all);
    for (const [name, element] of drawn)
      if (!known.has(name)) {
        element.remove();
        drawn.delete(name);
      }
    for (const name of all) {
      if (!drawn.has(name)) {
        const label = shortened(name, (text) => text.length <= MOST_LETTERS);
        const element = svg(
          "g",
          { class: "device", role: "button", tabindex: "-1", "data-device": name, "data-key": `device-${name}` },
          svg("circle"),
          svg("text", { class: "halo", "text-anchor": "middle" }, label),
        );
        drawn.set(name, element);
        layers.devices.append(element);
      }
      there(drawn.get(name)).setAttribute("aria-label", deviceWords(name, data).replaceAll("\n", ", "));
    }
    root.classList.toggle("named", all.length <= NAMED_UP_TO);
    roveTo(data.selected[0] ?? all[0]);
  }

  /**
   * One device can be reached with Tab, the others from it with the arrow keys.
   * @type {(name: string) => void}
   */
  function roveTo(name) {
    for (const [other, element] of drawn) element.setAttribute("tabindex", other === name ? "0" : "-1");
  }

  /** @type {(letter: Step) => void} */
  function show(letter) {
    step = letter;
    if (!data) return;
    root.dataset.step = step;
    for (const [name, element] of drawn) {
      const { x, y, r } = spot(name);
      const stage = data.places.get(name)?.stage;
      element.style.transform = `translate(${x}px, ${y}px)`;
      element.style.setProperty("--stage", step === "a" ? "var(--dtfm-device)" : stage === undefined ? GREY : paintOf(data.groups[stage].stage));
      const circle = there(element.firstElementChild);
      circle.setAttribute("r", String(r));
      circle.style.r = `${r}px`;
      there(element.lastElementChild).setAttribute("y", String(r + 11));
    }
    data.groups.forEach(showNode);
    for (const element of layers.edges.children) {
      const [a, b] = [Number(element.dataset.a), Number(element.dataset.b)];
      element.setAttribute("aria-label", edgeWords(data.groups, a, b, data.weights[a]?.[b] ?? NaN, step));
    }
    mark();
  }

  /** @type {(group: Group, stage: number) => void} */
  function showNode(group, stage) {
    const element = there(layers.nodes.querySelector(`[data-stage="${stage}"]`));
    const { x, y, dx, dy, open, shut } = placed.groups[stage];
    const radius = step < "c" ? open : shut;
    const [disc, inner, label] = element.children;
    disc.setAttribute("r", String(radius));
    disc.style.r = `${radius}px`;
    inner.textContent = step === "e" ? String(group.stage) : letterOf(group);
    const anchor = dx > 0.35 ? "start" : dx < -0.35 ? "end" : "middle";
    const lines = nodeLines(group);
    label.style.transform = `translate(${x + (anchor === "middle" ? 0 : dx * (radius + 9))}px, ${y + dy * (radius + 18)}px)`;
    [...label.children].forEach((text, index) => {
      text.setAttribute("text-anchor", anchor);
      text.setAttribute("y", String(lines[1] ? index * 15 - 3 : 4));
      text.textContent = lines[index] ?? "";
    });
    element.setAttribute("aria-label", groupWords(group, step));
  }

  /** @type {(group: Group) => string[]} */
  function nodeLines(group) {
    if (data.groups.length > MOST_IN_RING) return [];
    const named = group.letter ? `Group ${group.letter}` : `Stage ${group.stage}`;
    if (step === "b") return [named, seconds(group.cost_s)];
    if (step === "c") return [named, `${group.devices.length} device${group.devices.length === 1 ? "" : "s"}`];
    if (step === "d") return [named];
    return [`Stage ${group.stage}`, group.layers || seconds(group.cost_s)];
  }

  /** Selection, pipelines and the slowest pairs; nothing moves. */
  function mark() {
    const { selected, group, edge, link } = data;
    const chosen = new Set(selected);
    const mine = selected.map((name) => data.places.get(name)).filter((place) => place !== undefined);
    const pipelines = new Set(mine.map(({ replica }) => replica));
    const few = group < 0 && selected.length > 0 && pipelines.size <= SHOWN_PIPELINES;
    for (const [name, element] of drawn) {
      const place = data.places.get(name);
      element.classList.toggle("selected", chosen.has(name));
      element.classList.toggle("along", few && step !== "a" && place !== undefined && pipelines.has(place.replica));
      element.setAttribute("aria-pressed", String(chosen.has(name)));
    }
    root.classList.toggle("choosing", few);
    for (const element of layers.nodes.querySelectorAll(".node")) {
      const stage = Number(element.dataset.stage);
      element.classList.toggle("selected", stage === group);
      element.classList.toggle("home", few && mine.some((place) => place.stage === stage));
      element.setAttribute("aria-pressed", String(stage === group));
    }
    for (const element of [...layers.edges.children, ...layers.weights.children]) {
      const on = edge && Number(element.dataset.a) === edge[0] && Number(element.dataset.b) === edge[1];
      element.classList.toggle("selected", Boolean(on));
      if (element.hasAttribute("role")) element.setAttribute("aria-pressed", String(Boolean(on)));
    }
    layers.names.replaceChildren(...(few || selected.length === 1 ? selected.filter((name) => drawn.has(name)).map(calledByName) : []));
    const lines = few && step !== "a" ? [...pipelines].map((replica) => pipeline(replica)) : [];
    if (link?.every((name) => drawn.has(name))) lines.push(between(link, "pair"));
    layers.lines.replaceChildren(...lines);
  }

  /** @type {(name: string) => SVGElement} */
  function calledByName(name) {
    const { x, y, r } = spot(name);
    return svg("text", { class: "halo", x, y: y - r - 5, "text-anchor": "middle" }, name);
  }

  /** @type {(replica: number) => SVGElement} */
  const pipeline = (replica) => svg("polyline", { class: "pipeline", points: data.groups.map(({ devices }) => at(devices[replica])).join(" ") });

  /** @type {(name: string) => string} */
  const at = (name) => {
    const { x, y } = spot(name);
    return `${x},${y}`;
  };

  /** @type {(names: string[], kind: string) => SVGElement} */
  const between = (names, kind) => svg("polyline", { class: kind, points: names.map(at).join(" ") });

  /** @type {(name: string) => Dot} */
  const spot = (name) => placed.devices[step === "a" || step === "b" ? step : "c"].get(name) ?? there(placed.devices.a.get(name));

  /** @type {(stage: number) => number} */
  const radiusOf = (stage) => placed.groups[stage][step < "c" ? "open" : "shut"];

  /**
   * What is under a point: {device}, {stage}, {stage: -1} on the idle ones' ground, or null.
   * @type {(x: number, y: number, besides?: string) => Under}
   */
  function under(x, y, besides) {
    let found = null,
      nearest = Infinity;
    for (const name of drawn.keys()) {
      const place = spot(name);
      const away = Math.hypot(place.x - x, place.y - y);
      if (name !== besides && away < nearest && away <= Math.max(7, place.r + 3)) [found, nearest] = [name, away];
    }
    if (found !== null) return { device: found, stage: data.places.get(found)?.stage ?? -1 };
    if (step === "a") return null;
    const stage = placed.groups.findIndex((group, index) => Math.hypot(group.x - x, group.y - y) <= radiusOf(index) + 4);
    if (stage >= 0) return { stage };
    const { strip: ground } = placed;
    const inside = ground && x >= ground.x && x <= ground.x + ground.width && y >= ground.y && y <= ground.y + ground.height;
    return inside ? { stage: -1 } : null;
  }

  /**
   * Fades the devices that are not lit. Null lights all.
   * @type {(what: Pointed) => void}
   */
  function light(what) {
    const names = what?.devices ?? what?.link;
    for (const [name, element] of drawn) {
      const place = data?.places.get(name);
      const on = names
        ? names.includes(name)
        : what?.stage !== undefined
          ? place?.stage === what.stage
          : what?.replica !== undefined
            ? place?.replica === what.replica
            : true;
      element.classList.toggle("dim", !on);
    }
  }

  return {
    root,
    draw,
    show,
    mark,
    light,
    under,
    spot,
    radiusOf,
    roveTo,
    set: (/** @type {Data} */ next) => {
      data = next;
    },
    placed: () => placed,
    element: (/** @type {string} */ name) => drawn.get(name),
    /** Two devices pointed at in the list next to it. */
    point: (/** @type {string[] | null} */ names) =>
      layers.over.replaceChildren(...(names?.every((name) => drawn.has(name)) ? [between(names, "pointed")] : [])),
    over: layers.over,
  };
}

/**
 * Beside the middle of an edge of the path, inside the ring; on another edge, where no other label stands if there is room.
 * @type {(from: { x: number, y: number }, to: { x: number, y: number }, onPath: boolean, taken: { x: number, y: number }[]) => { x: number, y: number }}
 */
function labelPlace(from, to, onPath, taken) {
  /** @type {(share: number) => { x: number, y: number }} */
  const at = (share) => ({ x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share });
  /** @type {(place: { x: number, y: number }) => number} */
  const clash = ({ x, y }) => taken.reduce((sum, other) => sum + Math.max(0, 1 - Math.abs(other.x - x) / 48) * Math.max(0, 1 - Math.abs(other.y - y) / 17), 0);
  let place = at(0.5);
  if (onPath) {
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy) || 1;
    const away = 14 + 16 * (Math.abs(dy) / length); // a label is wider than it is high
    place = { x: place.x - (dy / length) * away, y: place.y + (dx / length) * away };
  } else {
    const places = [0.36, 0.64, 0.5, 0.42, 0.58, 0.28, 0.72].map(at); // not first in the middle, where edges cross
    const clashes = places.map(clash);
    place = places[clashes.indexOf(Math.min(...clashes))];
  }
  taken.push(place);
  return place;
}
