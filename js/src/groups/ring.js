// Up to sixteen groups: nodes on an arc in path order, the path thick, every other pair faint.
import { svg } from "../shared/dom.js";
import { seconds } from "../shared/axis.js";
import { inkOn, stageColor } from "../shared/theme.js";

const RADIUS = 17;
const FEW = 8; // up to so many groups there is room for whole labels

export function drawRing(width, height, plan, actions) {
  const { groups } = plan;
  const places = nodePlaces(width, height, groups.length);
  const drawing = svg("svg", { class: "dtfm-ring", viewBox: `0 0 ${width} ${height}` });
  for (let a = 0; a < groups.length; a++)
    for (let b = a + 2; b < groups.length; b++) drawing.append(faintEdge(places, a, b, plan));
  for (let edge = 0; edge < groups.length - 1; edge++) drawing.append(pathEdge(places, edge, plan, actions));
  groups.forEach((group, index) => drawing.append(node(places[index], group, index, plan, actions)));
  return drawing;
}

/** An ellipse from the left, clockwise over the top, open at the bottom left: a path has two ends. */
function nodePlaces(width, height, n) {
  const [cx, cy] = [width / 2, height / 2];
  const rx = Math.max(60, width / 2 - (n <= FEW ? 160 : 96));
  const ry = Math.max(50, height / 2 - 58);
  if (n === 1) return [{ x: cx, y: cy, dx: 0, dy: 1 }];
  if (n === 2) return [-1, 1].map((side) => ({ x: cx + side * Math.min(rx, 180), y: cy, dx: 0, dy: 1 }));
  const sweep = n === 3 ? Math.PI : 2 * Math.PI * ((n - 1) / n);
  const start = n === 3 ? Math.PI : -Math.PI / 2 - sweep / 2;
  const angles = evenAngles(rx, ry, start, sweep, n);
  return angles.map((angle) => {
    const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
    return { x: cx + rx * dx, y: cy + ry * dy + (n === 3 ? ry / 2 : 0), dx, dy };
  });
}

/** Angles that cut the ellipse's arc, not its angle, into equal parts: labels keep their distance. */
function evenAngles(rx, ry, start, sweep, n) {
  const fine = 720;
  const lengths = [0];
  const point = (step) => [rx * Math.cos(start + (sweep * step) / fine), ry * Math.sin(start + (sweep * step) / fine)];
  for (let step = 1; step <= fine; step++) {
    const [[x0, y0], [x1, y1]] = [point(step - 1), point(step)];
    lengths.push(lengths[step - 1] + Math.hypot(x1 - x0, y1 - y0));
  }
  let step = 0;
  return Array.from({ length: n }, (_, index) => {
    const wanted = (lengths[fine] * index) / (n - 1);
    while (step < fine && lengths[step] < wanted) step++;
    return start + (sweep * step) / fine;
  });
}

function faintEdge(places, a, b, { groups, weights }) {
  const [from, to] = [places[a], places[b]];
  const text = `stage ${groups[a].stage} – ${groups[b].stage}: ${seconds(weights[a]?.[b] ?? NaN)}`;
  return svg("g", { class: "other" }, ...lines(from, to), label(text, middle(from, to), "middle", "halo"));
}

function pathEdge(places, edge, { weights, edge: selected }, { selectEdge }) {
  const [from, to] = [places[edge], places[edge + 1]];
  const text = seconds(weights[edge]?.[edge + 1] ?? NaN);
  const element = svg("g", {
    class: `path${edge === selected ? " selected" : ""}`, "data-key": `edge-${edge}`, tabindex: "0", role: "button",
    "aria-pressed": String(edge === selected), "aria-label": `Stage ${edge} to stage ${edge + 1}, ${text}`,
  }, ...lines(from, to), label(text, insideOf(from, to), "middle", "halo"));
  pressable(element, () => selectEdge(edge));
  return element;
}

function node(place, group, index, { openStage, groups }, { selectGroup }) {
  const color = stageColor(group.stage);
  const n = groups.length;
  const devices = `${group.devices.length} device${group.devices.length === 1 ? "" : "s"}`;
  const text = `Stage ${group.stage} · ${devices} · ${seconds(group.cost_s)}`;
  const number = svg("text", { x: place.x, y: place.y + 4.5, "text-anchor": "middle", style: `fill:${inkOn(color)};font-weight:600` }, String(group.stage));
  const element = svg("g", {
    class: `node${index === openStage ? " selected" : ""}`, "data-key": `group-${index}`, tabindex: "0", role: "button", "aria-label": text,
  }, svg("title", {}, text), svg("circle", { cx: place.x, cy: place.y, r: RADIUS, fill: color }), number, ...nodeLabel(place, group, devices, n));
  pressable(element, () => selectGroup(index));
  return element;
}

/** Outside the ring, away from the lines; the circle itself carries the stage's number. */
function nodeLabel(place, group, devices, n) {
  const cost = seconds(group.cost_s);
  const [first, second] = n <= FEW ? [`Stage ${group.stage}`, `${devices} · ${cost}`] : [devices, cost];
  const anchor = place.dx > 0.35 ? "start" : place.dx < -0.35 ? "end" : "middle";
  const x = place.x + (anchor === "middle" ? 0 : place.dx * (RADIUS + 9));
  const y = place.y + place.dy * (RADIUS + 17);
  return [label(first, { x, y: y - 7 }, anchor, "halo"), label(second, { x, y: y + 8 }, anchor, "halo soft")];
}

function lines(from, to) {
  const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  return [svg("line", { class: "hit", ...ends }), svg("line", { class: "ink", ...ends })];
}

/** Beside the middle of an edge, towards the centre of the ring: a short edge stays visible. */
function insideOf(from, to) {
  const at = middle(from, to);
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const steep = Math.abs(dy) / length;
  const away = 13 + 14 * steep; // a label is wider than it is high
  return { x: at.x - (dy / length) * away, y: at.y + (dx / length) * away };
}

const middle = (from, to) => ({ x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 });

const label = (text, { x, y }, anchor, className) =>
  svg("text", { x, y: y + 4, "text-anchor": anchor, class: className }, text);

function pressable(element, press) {
  element.addEventListener("click", press);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    press();
  });
}
