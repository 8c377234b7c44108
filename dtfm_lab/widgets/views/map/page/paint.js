// Draws a placement: lines, clusters, counts, names, the tray.
import { figures } from "shared/axis.js";
import { fitting } from "shared/text.js";
import { inkOn, GREEN, VERMILLION } from "shared/theme.js";
import { halo } from "./cities.js";
import { TRAY_HEAD } from "./clusters.js";

const FEW_LINES = 6; // have their numbers written on them
const MANY_LINES = 20;
const TURN = 2 * Math.PI;

/** "67 ms, 0.79 Gbit/s", with ≈ where a rule says so; both ways where they differ. */
export function numbers({ a, b, there, back, kind }) {
  const say = ({ latency_ms, bandwidth_gbps }) => `${kind === "filled" ? "≈ " : ""}${figures(latency_ms)} ms, ${figures(bandwidth_gbps)} Gbit/s`;
  if (there.latency_ms === back.latency_ms && there.bandwidth_gbps === back.bandwidth_gbps) return [say(there)];
  return [`${a} → ${b}: ${say(there)}`, `${b} → ${a}: ${say(back)}`];
}

/** `stands(a, b)` says whether a line stands out; nothing does while `quiet`. */
export function paintLines(context, placement, theme, stands, quiet) {
  const faint = placement.arcs.length > MANY_LINES ? 0.3 : 0.55;
  const draw = (arc, out) => {
    context.globalAlpha = out ? 1 : quiet ? faint : faint * 0.45;
    context.strokeStyle = out ? theme.text : theme.softText;
    context.lineWidth = arc.width;
    context.setLineDash(arc.kind === "filled" ? [0.5, 3 + arc.width] : []);
    context.lineCap = arc.kind === "filled" ? "round" : "butt";
    context.beginPath();
    for (const route of arc.routes) route.forEach(([x, y], at) => context[at ? "lineTo" : "moveTo"](x, y));
    context.stroke();
  };
  const out = placement.arcs.filter(({ a, b }) => stands(a, b));
  for (const arc of placement.arcs) if (!out.includes(arc)) draw(arc, false);
  for (const arc of out) draw(arc, true);
  context.setLineDash([]);
  context.lineCap = "butt";
  context.globalAlpha = 1;
  return out;
}

/** Numbers on lines, where these are few or stand out, one not over another. */
export function paintNumbers(context, placement, theme, out) {
  const told = out.length ? out.slice(0, 12) : placement.arcs.length <= FEW_LINES ? placement.arcs : [];
  context.font = theme.font.replace("12px", "11px");
  context.textAlign = "center";
  context.textBaseline = "middle";
  const taken = placement.groups.map(({ x, y, half, radius }) => [x - half[0], y - radius - 16, x + half[0], y + radius]);
  for (const arc of told) {
    const lines = numbers(arc);
    const [wide, tall] = [Math.max(...lines.map((line) => context.measureText(line).width)) / 2 + 3, lines.length * 7 + 1];
    const spots = arc.routes.flatMap((route) => [0.5, 0.4, 0.6, 0.3, 0.7].map((share) => route[Math.round(share * (route.length - 1))]));
    const spot = spots.find(([x, y]) => x - wide > 0 && x + wide < placement.width && y - tall > 0 && y + tall < placement.lost.top
      && !taken.some(([l, t, r, b]) => x - wide < r && x + wide > l && y - tall < b && y + tall > t));
    if (!spot) continue;
    const [x, y] = spot;
    taken.push([x - wide, y - tall, x + wide, y + tall]);
    context.fillStyle = theme.surface;
    context.globalAlpha = 0.88;
    context.beginPath();
    context.roundRect(x - wide, y - tall, 2 * wide, 2 * tall, 3);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = theme.text;
    lines.forEach((line, at) => context.fillText(line, x, y + (at - (lines.length - 1) / 2) * 14 + 0.5));
  }
}

/** `look(device)` is {color, stage}; `isChosen(name)` of a device; `bare` is the selected region without any. */
export function paintGroups(context, placement, theme, { look, isChosen, aimed, pointed, bare }) {
  for (const { home, x, y, radius, devices } of placement.groups) {
    if (!devices.length || Math.hypot(x - home[0], y - home[1]) <= radius) continue;
    context.strokeStyle = theme.softText;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(...home);
    context.lineTo(x, y);
    context.stroke();
    disc(context, ...home, 2.5, theme.softText);
  }
  for (const group of placement.groups) {
    const { x, y, radius, name, devices } = group;
    const all = devices.length > 0 ? devices.every((device) => isChosen(device.name)) : name === bare;
    context.globalAlpha = 0.92;
    disc(context, x, y, radius, theme.surface);
    context.globalAlpha = 1;
    context.lineWidth = name === aimed ? 3 : all ? 2 : 1;
    context.strokeStyle = name === aimed ? GREEN : all ? VERMILLION : name === pointed ? theme.text : theme.border;
    context.setLineDash(devices.length ? [] : [3, 3]);
    context.beginPath();
    context.arc(x, y, radius, 0, TURN);
    context.stroke();
    context.setLineDash([]);
    if (group.counted) paintCount(context, x, y, radius, devices, theme, look, isChosen);
  }
  paintDots(context, placement.dots.filter(({ group }) => !group.tray), placement.dot, theme, look, isChosen);
  context.font = `600 ${theme.font}`;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  for (const { x, y, radius, name, named } of placement.groups) if (named || name === pointed || name === aimed) halo(context, placement.shown(name), x, y - radius - 4, theme, theme.text);
}

function paintDots(context, dots, size, theme, look, isChosen) {
  const radius = size / 2 - 1;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = theme.font.replace("12px", `600 ${Math.max(7, Math.round(size * 0.6))}px`);
  for (const { device, x, y } of dots) {
    const { color, stage } = look(device);
    disc(context, x, y, radius, color);
    if (isChosen(device.name)) {
      context.strokeStyle = VERMILLION;
      context.lineWidth = 2.5;
      context.stroke();
    }
    if (stage === undefined || size < 10) continue;
    context.fillStyle = inkOn(color);
    context.fillText(String(stage), x, y + 0.5);
  }
}

/** A ring with a piece for each colour, and how many devices it stands for. */
function paintCount(context, x, y, radius, devices, theme, look, isChosen) {
  const count = new Map();
  for (const device of devices) {
    const { color } = look(device);
    count.set(color, (count.get(color) ?? 0) + 1);
  }
  let from = -Math.PI / 2;
  for (const [color, n] of count) {
    const to = from + (n / devices.length) * TURN;
    context.strokeStyle = color;
    context.lineWidth = 4;
    context.beginPath();
    context.arc(x, y, radius - 2, from, to);
    context.stroke();
    from = to;
  }
  if (devices.some((device) => isChosen(device.name))) {
    context.strokeStyle = VERMILLION;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, radius + 1, 0, TURN);
    context.stroke();
  }
  context.fillStyle = theme.text;
  context.font = `600 ${theme.font.replace("12px", radius < 12 ? "10px" : "11px")}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(String(devices.length), x, y + 0.5);
}

export function paintTray(context, placement, theme, { look, isChosen }) {
  const { groups, top, more } = placement.lost;
  if (!groups.length) return;
  context.globalAlpha = 0.95;
  context.fillStyle = theme.surface;
  context.fillRect(0, top, placement.width, placement.height - top);
  context.globalAlpha = 1;
  context.fillStyle = theme.border;
  context.fillRect(0, top, placement.width, 1);
  context.font = theme.font.replace("12px", "11px");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = theme.softText;
  const rest = more ? `, and ${more} more region${more === 1 ? "" : "s"}` : "";
  const hint = `In no known place: drag them onto the map, or name their region after a city${rest}`;
  context.fillText(fitting(context, hint, placement.width - 20), 10, top + TRAY_HEAD / 2 + 2);
  for (const { x, y, name, devices, counted, bubble } of groups) {
    const all = devices.every((device) => isChosen(device.name));
    context.font = `600 ${theme.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = all ? VERMILLION : theme.text;
    context.fillText(placement.shown(name || "no region"), x, y + 0.5);
    if (counted) paintCount(context, ...bubble, 11, devices, theme, look, isChosen);
  }
  paintDots(context, placement.dots.filter(({ group }) => group.tray), Math.min(placement.dot, 16), theme, look, isChosen);
}

/** A ring around the city that something would come to, with its name. */
export function paintTarget(context, { name, x, y, known }, theme) {
  context.strokeStyle = GREEN;
  context.lineWidth = 2.5;
  if (known) return;
  context.beginPath();
  context.arc(x, y, 9, 0, TURN);
  context.stroke();
  disc(context, x, y, 2.5, GREEN);
  context.font = `600 ${theme.font}`;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  halo(context, name, x, y - 13, theme, theme.text);
}

/** What is dragged, under the pointer. */
export function paintDragged(context, devices, x, y, size, theme, look) {
  context.globalAlpha = 0.85;
  const shown = devices.slice(0, 12);
  paintDots(context, shown.map((device, at) => ({ device, x: x + 6 + (at % 4) * size * 0.8, y: y + 10 + Math.floor(at / 4) * size * 0.8 })), size, theme, look, () => true);
  context.globalAlpha = 1;
}

/** What Shift and a drag select. */
export function paintBox(context, { start: [x0, y0], now: [x1, y1] }) {
  context.strokeStyle = context.fillStyle = VERMILLION;
  context.lineWidth = 1;
  context.strokeRect(x0, y0, x1 - x0, y1 - y0);
  context.globalAlpha = 0.12;
  context.fillRect(x0, y0, x1 - x0, y1 - y0);
  context.globalAlpha = 1;
}

function disc(context, x, y, radius, color) {
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, radius, 0, TURN);
  context.fill();
}
