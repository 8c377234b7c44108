// Paints the canvas: boxes, lines, devices in their GPU's shape and stage's colour, names; and what runs on them.
import { paintNumber } from "shared/cell.js";
import { linkDash, linkWidth } from "shared/links.js";
import { fitting } from "shared/text.js";
import { alarm, inkOn, kindColor, stageColor } from "shared/theme.js";
import { curve, inCircle, inRectangle, trace } from "./geometry.js";
import { framesOf } from "./hosts.js";
import { LEAST_NAME } from "./style.js";
import { there } from "shared/there.js";
/** @import { Context, Point, Theme } from "shared/types.d.ts" */
/** @import { Curve, Ends, Frame, Inside, Laid, LineKind, Look, Rectangle, Scene, SceneDevice, SceneLine, View } from "../types.d.ts" */

const FADED = 0.28;
const TEXT = 12; // pixels of names and titles
const [HALO, BEAT] = [7, 9]; // pixels on each side of what limits the plan, and that a beat of its pulse grows
const MANY_USED = 16; // lines, above which those of averaging alone and those that the plan does not use are thin
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const BESIDE_TITLE = 10; // pixels beside a small region that its title, above it, may take
/** @type {(size: number, weight?: number) => string} */
const font = (size, weight = 400) => `${weight} ${size}px ${FONT}`;
const LEAST_NUMBER = 12.5; // pixels of a device's height for its number
const [LEAST_CELL, LEAST_EDGE] = [8, 14]; // pixels of a cell for its rounding, of a box for its edge

/**
 * The lines of a scene as curves on the screen, and the rectangles that labels keep off.
 * @type {(context: Context, scene: Scene, view: View, peeked: Ends | null) => Laid}
 */
export function layOut(context, scene, view, peeked) {
  /** @type {Map<string, Frame>} */
  const frames = new Map();
  for (const device of scene.devices) {
    const place = view.device(device.name);
    if (!place) continue;
    if (device.shape === "host") for (const [name, frame] of framesOf(device, place, view.host)) frames.set(name, frame);
    else frames.set(device.name, { ...place, shape: device.shape, width: device.shape === "box" ? view.width : view.height, height: view.height });
  }
  const boxes = new Map(scene.boxes.map(({ name }) => [name, view.box(name)]));
  /** @type {(frame: Frame) => Inside} */
  const inside = ({ x, y, shape, width, height }) =>
    ["box", "host"].includes(shape)
      ? inRectangle({ x1: x - width / 2, x2: x + width / 2, y1: y - height / 2, y2: y + height / 2 }, 3)
      : inCircle({ x, y }, height / 2 + 3);
  /** @type {(box: Rectangle) => Point} */
  const center = ({ x1, x2, y1, y2 }) => ({ x: (x1 + x2) / 2, y: (y1 + y2) / 2 });
  /** @type {Laid["curves"]} */
  const curves = new Map();
  /** @type {(line: { id: string, kind: LineKind, ends: Ends }, bend: number) => void} */
  const put = (line, bend) => {
    const [a, b] = line.ends;
    if (line.kind === "pair") {
      const [one, two] = [boxes.get(a), boxes.get(b)];
      if (one && two) curves.set(line.id, curve(center(one), center(two), bend, inRectangle(one, 2), inRectangle(two, 2)));
    } else {
      const [from, to] = [frames.get(a), frames.get(b)];
      if (from && to) curves.set(line.id, curve(from, to, bend, inside(from), inside(to)));
    }
  };
  for (const line of scene.lines) put(line, view.bend(line.id));
  if (peeked) put({ id: "peek", kind: "link", ends: peeked }, 0);

  const named = view.apart >= LEAST_NAME;
  context.font = font(TEXT);
  /** @type {Laid["names"]} */
  const names = new Map();
  /** @type {Laid["taken"]} */
  const taken = [];
  for (const { name, members } of scene.devices) {
    const place = frames.get(name);
    if (!place) continue;
    const [w, h] = [place.width / 2, place.height / 2];
    taken.push({ owner: name, x1: place.x - w - 2, x2: place.x + w + 2, y1: place.y - h - 2, y2: place.y + h + 2 });
    if (!named) continue;
    const room = Math.max(view.apart - 6, view.width);
    const text = context.measureText(name).width <= room ? name : fitting(context, scene.shortNames.get(name) ?? name, room);
    const wide = context.measureText(text).width / 2;
    const y = place.y + h + (members.length ? 3 : 5);
    names.set(name, { text, x: place.x, y, whole: text === name });
    taken.push({ owner: name, x1: place.x - wide, x2: place.x + wide, y1: y, y2: y + TEXT + 2 });
  }
  /** @type {Laid["titles"]} */
  const titles = new Map();
  for (const { name, labels } of scene.boxes) {
    const box = boxes.get(name);
    if (!box) continue;
    const within = view.padding >= 18;
    const wide = box.x2 - box.x1 + (within ? -20 : BESIDE_TITLE);
    const text = labels.find((label) => context.measureText(label).width <= wide) ?? fitting(context, name, Math.max(30, wide));
    const [x, y] = within ? [box.x1 + 14, box.y1 + Math.min(18, view.padding - 4)] : [box.x1, box.y1 - 2];
    titles.set(name, { text, x, y });
    taken.push({ owner: name, x1: x, x2: x + context.measureText(text).width, y1: y - 11, y2: y + 4 });
  }
  return { frames, boxes, curves, names, titles, taken };
}

/**
 * `look` is {theme, selected(kind, name), light: null | {device(name), line(line)}, shade: 0..1 how far others have
 * faded, badges, run: {computing, messages} or null, conditions, peeked, hovered, found}.
 * @type {(context: Context, scene: Scene, view: View, laid: Laid, look: Look) => void}
 */
export function paint(context, scene, view, laid, look) {
  const { theme, light, shade } = look;
  /** @type {(lit: boolean) => number} */
  const alpha = (lit) => (lit ? 1 : 1 - (1 - FADED) * shade);
  /** @type {(name: string) => boolean} */
  const litDevice = (name) => !light || light.device(name);
  paintBoxes(context, scene, laid, look);
  paintBound(context, scene, view, laid, look);
  const tangled = scene.lines.length > 150;
  const quiet = scene.nStages > 0 && scene.lines.length > MANY_USED;
  const crowded = scene.lines.filter((one) => one.uses.size).length > MANY_USED;
  for (const line of [...scene.lines].sort((one, other) => weight(one, look) - weight(other, look))) {
    const way = laid.curves.get(line.id);
    if (!way) continue;
    const picked = look.selected(line.kind, line.id);
    const pointed = look.hovered === line.id;
    context.globalAlpha = alpha(!light || light.line(line)) * (tangled && !picked ? 0.35 : 1);
    paintLine(context, line, way, { theme, picked, pointed, tangled, crowded, quiet });
  }
  if (laid.curves.has("peek")) {
    context.globalAlpha = 1;
    context.strokeStyle = theme.text;
    context.lineWidth = 1.5;
    stroke(context, there(laid.curves.get("peek")), [4, 4]);
  }
  for (const device of scene.devices) {
    const frame = laid.frames.get(device.name);
    if (!frame || !onScreen(frame, look)) continue;
    context.globalAlpha = alpha(litDevice(device.name)) * presence(scene, device.name);
    paintBody(context, device, frame, look);
    if (device.members.length) paintCells(context, scene, device, laid, look, alpha, litDevice);
  }
  paintBadges(context, scene, view, laid, look, alpha, litDevice);
  paintRun(context, scene, view, laid, look);
  paintTitles(context, laid, look); // over the devices of a region above, where all are small
  paintNames(context, scene, view, laid, look, alpha, litDevice);
  context.globalAlpha = 1;
}

/** @type {(place: Point, look: Look) => boolean} */
const onScreen = ({ x, y }, { width, height }) => x > -60 && y > -60 && x < width + 60 && y < height + 60;

/**
 * Grey lines are below the plan's lines, and those are below the selection.
 * @type {(line: SceneLine, look: Look) => number}
 */
const weight = (line, look) => (look.selected(line.kind, line.id) ? 4 : 0) + (line.uses.size ? 2 : 0) + (line.own ? 1 : 0) - (line.kind === "pair" ? 3 : 0);

/** @type {(context: Context, scene: Scene, laid: Laid, look: Look) => void} */
function paintBoxes(context, scene, laid, { theme, selected, aimed }) {
  for (const { name, count } of scene.boxes) {
    const box = laid.boxes.get(name);
    if (!box) continue;
    const picked = selected("region", name);
    context.beginPath();
    context.roundRect(box.x1, box.y1, box.x2 - box.x1, box.y2 - box.y1, 14);
    context.globalAlpha = 0.5;
    context.fillStyle = theme.raised;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = picked || aimed === name ? theme.text : theme.softBorder;
    context.lineWidth = picked ? 2 : 1;
    context.setLineDash(count && aimed !== name ? [] : [5, 4]);
    context.stroke();
    context.setLineDash([]);
  }
}

/** @type {(context: Context, laid: Laid, look: Look) => void} */
function paintTitles(context, laid, { theme, selected }) {
  context.globalAlpha = 1;
  for (const [name, title] of laid.titles) {
    context.font = font(TEXT, selected("region", name) ? 650 : 400);
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    haloed(context, title.text, title.x, title.y, theme.softText, theme.surface);
  }
}

/**
 * Text with an edge in the ground's colour, so that a line behind does not cut it.
 * @type {(context: Context, text: string, x: number, y: number, color: string, ground: string) => void}
 */
function haloed(context, text, x, y, color, ground) {
  context.strokeStyle = ground;
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}

/**
 * What limits the plan: a band of ink under its line, or a ring around its device, which widens at each beat.
 * @type {(context: Context, scene: Scene, view: View, laid: Laid, look: Look) => void}
 */
function paintBound(context, scene, view, laid, { theme, beat }) {
  const rings = [[0, 0.13], ...(beat ? [[2 * BEAT * beat.grown, 0.25 * beat.strength]] : [])];
  context.strokeStyle = theme.text;
  for (const [grown, alpha] of rings) {
    context.globalAlpha = alpha;
    for (const line of scene.lines) {
      const way = line.binds && laid.curves.get(line.id);
      if (!way) continue;
      context.lineWidth = linkWidth(line.bandwidth_gbps) + 2 * HALO + grown;
      stroke(context, way, []);
    }
    for (const { name, binds } of scene.devices) {
      const frame = binds && laid.frames.get(name);
      if (!frame) continue;
      context.lineWidth = 2 * HALO + grown;
      shapePath(context, frame);
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

/** @type {(context: Context, line: SceneLine, way: Curve, look: { theme: Theme, picked: boolean, pointed: boolean, tangled: boolean, crowded: boolean, quiet: boolean }) => void} */
function paintLine(context, line, way, { theme, picked, pointed, tangled, crowded, quiet }) {
  const hop = line.uses.has("hop");
  const base = context.globalAlpha;
  const strong = picked || pointed || line.suspect;
  context.globalAlpha = base * (strong ? 1 : hop ? 0.62 : line.uses.size ? (crowded ? 0.35 : 0.6) : quiet ? 0.55 : 0.8);
  context.strokeStyle = line.suspect ? alarm(theme.dark) : strong || hop ? theme.text : line.uses.size ? kindColor("averaging", theme.dark) : theme.border;
  const width = tangled ? 1 : linkWidth(line.bandwidth_gbps) * (strong || hop ? 1 : line.uses.size ? (crowded ? 0.6 : 1) : quiet ? 0.45 : 1);
  context.lineWidth = picked ? width + 1.5 : width;
  stroke(
    context,
    way,
    linkDash(line.latency_ms).map((length) => (length * Math.max(2, width)) / 3),
  );
  if (line.oneWay && !tangled) paintArrow(context, way, width);
  context.globalAlpha = base;
}

/** @type {(context: Context, way: Curve, dash: number[]) => void} */
function stroke(context, way, dash) {
  context.setLineDash(dash);
  context.lineCap = dash.length ? "butt" : "round";
  context.beginPath();
  trace(context, way);
  context.stroke();
  context.setLineDash([]);
}

/** @type {(context: Context, way: Curve, width: number) => void} */
function paintArrow(context, { a, c, b, to }, width) {
  /** @type {(t: number) => [number, number]} */
  const at = (t) => {
    const s = 1 - t;
    return [s * s * a.x + 2 * s * t * c.x + t * t * b.x, s * s * a.y + 2 * s * t * c.y + t * t * b.y];
  };
  const [[x, y], [fromX, fromY]] = [at(to), at(to - 0.03)];
  const turn = Math.atan2(y - fromY, x - fromX);
  const size = 5 + width;
  context.fillStyle = context.strokeStyle;
  context.beginPath();
  context.moveTo(x, y);
  for (const side of [0.45, -0.45]) context.lineTo(x - size * Math.cos(turn + side), y - size * Math.sin(turn + side));
  context.fill();
}

/**
 * The outline of a device's shape around its place, `grow` pixels larger.
 * @type {(context: Context, frame: Frame, grow?: number) => void}
 */
function shapePath(context, { shape, x, y, width, height }, grow = 0) {
  context.beginPath();
  const half = height / 2 + grow;
  if (shape === "cell" && Math.min(width, height) < LEAST_CELL) context.rect(x - width / 2 - grow, y - half, width + 2 * grow, 2 * half);
  else if (shape === "cell") context.roundRect(x - width / 2 - grow, y - half, width + 2 * grow, 2 * half, Math.min(4, height / 5));
  else if (shape === "box" || shape === "host")
    context.roundRect(x - width / 2 - grow, y - half, width + 2 * grow, 2 * half, Math.min(7, height / 4) + grow / 2);
  else if (shape === "triangle") {
    const reach = half * 1.2;
    context.moveTo(x, y - reach);
    context.lineTo(x + reach * 1.02, y + reach * 0.76);
    context.lineTo(x - reach * 1.02, y + reach * 0.76);
    context.closePath();
  } else context.arc(x, y, half, 0, 2 * Math.PI);
}

/**
 * What stands where no stage is: the shape alone, and rings for what is selected or found.
 * @type {(context: Context, device: SceneDevice, frame: Frame, look: Look) => void}
 */
function paintBody(context, { name, task, suspect, members }, frame, { theme, selected, found, conditions, stage, under }) {
  const isHost = members.length > 0;
  if (!isHost) {
    shapePath(context, frame, 2.5);
    context.fillStyle = theme.surface;
    context.fill();
  }
  if (!isHost || frame.height >= LEAST_EDGE) {
    shapePath(context, frame);
    context.fillStyle = isHost ? theme.surface : theme.raised;
    context.fill();
    context.strokeStyle = theme.border;
    context.lineWidth = isHost ? 1 : 1.5;
    context.stroke();
  }
  if (selected("device", name) || found.has(name) || name === under || (!isHost && task && task[0] === stage)) {
    if (name === under) context.globalAlpha = 1;
    shapePath(context, frame, isHost ? 2.5 : 4.5);
    context.strokeStyle = theme.text;
    context.lineWidth = selected("device", name) ? 2.5 : 1.5;
    context.setLineDash((found.has(name) && !selected("device", name)) || name === under ? [3, 3] : []);
    context.stroke();
    context.setLineDash([]);
  }
  if (conditions[name] === "slow" || suspect) {
    shapePath(context, frame, 2.5);
    context.strokeStyle = alarm(theme.dark);
    context.lineWidth = 2;
    context.stroke();
  }
}

/**
 * The devices of a host, each in its stage's colour; hollow where the plan does not use it.
 * @type {(context: Context, scene: Scene, device: SceneDevice, laid: Laid, look: Look, alpha: (lit: boolean) => number, litDevice: (name: string) => boolean) => void}
 */
function paintCells(context, scene, { members, cells }, laid, look, alpha, litDevice) {
  const { theme, conditions, parts, stage } = look;
  members.forEach((name, at) => {
    const frame = there(laid.frames.get(name));
    const [task, condition] = [cells[at], conditions[name] ?? ""];
    context.globalAlpha = alpha(litDevice(name)) * (condition === "killed" ? 0.35 : presence(scene, name));
    shapePath(context, frame);
    context.fillStyle = task ? stageColor(task[0], scene.nStages, theme.dark) : theme.surface;
    context.fill();
    if (!task && frame.height >= 4) {
      shapePath(context, frame, -0.5);
      context.strokeStyle = theme.border;
      context.lineWidth = 1;
      context.stroke();
    }
    if (task) paintNumber(context, task[0], frame, scene.nStages, theme);
    context.globalAlpha = alpha(litDevice(name));
    const isWrong = condition === "slow" || scene.slow.has(name);
    if (parts.has(name) || scene.bound.has(name) || isWrong || (task && task[0] === stage)) {
      shapePath(context, frame, -0.5);
      context.strokeStyle = isWrong ? alarm(theme.dark) : theme.text;
      context.lineWidth = Math.min(2.5, Math.max(1.5, frame.height / 8));
      context.stroke();
    }
    if (condition === "killed") paintCrack(context, frame, theme);
    if (condition === "paused") paintPause(context, frame, theme);
  });
}

/**
 * Opacity of a device that is away at the moment that is looked at.
 * @type {(scene: Scene, device: string) => number}
 */
const presence = ({ absent }, device) => (absent.has(device) ? 0.25 : 1);

/** @type {(context: Context, scene: Scene, view: View, laid: Laid, look: Look, alpha: (lit: boolean) => number, litDevice: (name: string) => boolean) => void} */
function paintBadges(context, scene, view, laid, look, alpha, litDevice) {
  const { theme, conditions } = look;
  const ordered = [...look.badges].sort((one, other) => Number(one.flying) - Number(other.flying));
  for (const { device, stage, x, y } of ordered) {
    const place = view.toScreen({ x, y });
    const standing = laid.frames.get(device);
    if (!standing || !onScreen(place, look)) continue;
    const frame = { ...standing, ...place };
    const killed = conditions[device] === "killed";
    const fill = stageColor(stage, scene.nStages, theme.dark);
    context.globalAlpha = alpha(litDevice(device)) * (killed ? 0.35 : presence(scene, device));
    shapePath(context, frame);
    context.fillStyle = fill;
    context.fill();
    if (view.height >= LEAST_NUMBER) {
      const size = Math.min(15, Math.max(11, Math.round(view.height * 0.42)));
      context.font = font(size, 650);
      context.fillStyle = killed ? theme.text : inkOn(fill);
      context.textAlign = "center";
      context.textBaseline = "middle";
      const text = String(stage);
      if (context.measureText(text).width < view.height) context.fillText(text, place.x, place.y + (frame.shape === "triangle" ? view.height * 0.12 : 0.5));
    }
    context.globalAlpha = alpha(litDevice(device));
    if (killed) paintCrack(context, frame, theme);
    if (conditions[device] === "paused") paintPause(context, frame, theme);
  }
}

/** @type {(context: Context, frame: Frame, theme: Theme) => void} */
function paintCrack(context, frame, theme) {
  const { height } = frame;
  context.save();
  shapePath(context, frame);
  context.strokeStyle = alarm(theme.dark);
  context.lineWidth = Math.min(2.5, Math.max(1.5, height / 6));
  context.stroke();
  context.clip();
  context.beginPath();
  [
    [-0.12, -0.62],
    [0.1, -0.22],
    [-0.14, 0.02],
    [0.16, 0.28],
    [-0.02, 0.66],
  ].forEach(([dx, dy], at) => (at ? context.lineTo : context.moveTo).call(context, frame.x + dx * height, frame.y + dy * height));
  context.lineWidth = Math.max(1.5, height / 14);
  context.stroke();
  context.restore();
}

/** @type {(context: Context, frame: Frame, theme: Theme) => void} */
function paintPause(context, { x, y, height }, theme) {
  context.fillStyle = theme.text;
  for (const dx of [-0.16, 0.06]) context.fillRect(x + dx * height + height * 0.42, y - height * 0.5, height * 0.1, height * 0.3);
}

/**
 * Rings and bars on computing devices, dots for messages, squares for a state that arrives from a peer.
 * @type {(context: Context, scene: Scene, view: View, laid: Laid, look: Look) => void}
 */
function paintRun(context, scene, view, laid, { theme, run, travelling, conditions }) {
  context.globalAlpha = 1;
  for (const { device, kind, share } of run?.computing ?? []) {
    const frame = laid.frames.get(device);
    if (!frame || ["killed", "paused"].includes(conditions[device])) continue; // what was measured before is still played
    const { shape, width, height } = frame;
    const isCell = shape === "cell"; // its neighbours are beside it
    shapePath(context, frame, isCell ? 0 : 3);
    context.strokeStyle = kindColor(kind, theme.dark);
    context.lineWidth = isCell ? Math.min(3, Math.max(1.5, height / 6)) : 3;
    context.stroke();
    if (height < LEAST_NUMBER || isCell) continue;
    const [wide, high] = [width * (shape === "box" ? 0.84 : 0.62), Math.max(2.5, height / 12)];
    const [left, top] = [frame.x - wide / 2, frame.y + height / 2 - high - Math.max(2.5, height / (shape === "box" ? 14 : 7))];
    context.fillStyle = "rgb(255 255 255 / 45%)";
    context.fillRect(left, top, wide, high);
    context.fillStyle = "#ffffff";
    context.fillRect(left, top, wide * share, high);
  }
  // Many messages at once would cover the devices.
  const radius = Math.min(7, Math.max(3.5, view.height * 0.18), Math.max(2, 160 / Math.sqrt(500 + 20 * travelling.length)));
  for (const { x, y, kind, share } of travelling) {
    context.beginPath();
    if (kind === "state") {
      context.rect(x - 3.5, y - 3.5, 7, 7);
      context.fillStyle = share;
    } else {
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fillStyle = kindColor(kind, theme.dark);
    }
    context.fill();
    context.strokeStyle = theme.surface;
    context.lineWidth = 1.5;
    context.stroke();
  }
}

/** @type {(context: Context, scene: Scene, view: View, laid: Laid, look: Look, alpha: (lit: boolean) => number, litDevice: (name: string) => boolean) => void} */
function paintNames(context, scene, view, laid, look, alpha, litDevice) {
  const { theme } = look;
  context.textAlign = "center";
  context.textBaseline = "top";
  /** @type {(Point & { name: string, picked: boolean })[]} */
  const over = [];
  for (const { name, members } of scene.devices) {
    const place = laid.frames.get(name);
    if (!place || !onScreen(place, look)) continue;
    const [picked, pointed] = [look.selected("device", name), look.hovered === `device:${name}`];
    const short = laid.names.get(name);
    if (pointed || (picked && look.nSelected < 4)) {
      const said = members.length ? `${name}: ${members.length} GPUs` : name;
      over.push({ name: said, x: place.x, y: place.y + place.height / 2 + (members.length ? 3 : place.shape === "box" ? 5 : 6), picked });
      continue;
    }
    if (!short) continue;
    context.globalAlpha = alpha(litDevice(name));
    context.font = font(TEXT, picked ? 650 : 400);
    haloed(context, short.text, short.x, short.y, short.whole ? theme.text : theme.softText, theme.surface);
  }
  context.globalAlpha = 1;
  for (const { name, x, y, picked } of over) {
    // with its own background, because it may be wider than its place
    context.font = font(TEXT, picked ? 650 : 400);
    const wide = context.measureText(name).width;
    const left = Math.min(look.width - wide - 6, Math.max(6, x - wide / 2));
    context.fillStyle = theme.surface;
    context.globalAlpha = 0.9;
    context.fillRect(left - 3, y - 1, wide + 6, 16);
    context.globalAlpha = 1;
    context.fillStyle = theme.text;
    context.fillText(name, left + wide / 2, y);
  }
}
