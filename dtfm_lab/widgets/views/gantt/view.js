// Who does what when: predicted bars and below them, row by row, measured ones as they come in, or those of
// another schedule.
import { cleanUps, frame, h, oncePerFrame, onTraits, typed } from "shared/dom.js";
import { sharpCanvas, tooltip } from "shared/canvas.js";
import { Bars, barUnder, COLUMNS, counterpart, joined, LATE, NO_BARS } from "./page/bars.js";
import { pinnedBar } from "./page/pinned_bar.js";
import { extraHeight } from "./page/layout.js";
import { minimap } from "./page/minimap.js";
import { navigation } from "./page/navigate.js";
import { offer, picture, unpacked } from "./page/save.js";
import { chartPainter, stripsOf, UPPER } from "./page/chart.js";
import { BAR_TRAITS, extent, readRest, readUpper, TEXT_TRAITS } from "./page/state.js";
import { bytes, heldAt } from "./page/strips.js";
import { describe, moment } from "./page/words.js";

const STREAMED = { ...COLUMNS, ...LATE };
const HINT = "Click, then scroll to zoom (or Ctrl + scroll) · drag to pan · double-click for all";
const KEYS = "Keys: + - 0 and the arrows, P for the critical path, M for messages, comma and full stop from bar to bar, Esc.";
const RESTED = 160; // milliseconds without a move
const PNG_RATIO = 2;

function render({ model, el }) {
  const cleanUp = cleanUps();
  let state = { upper: NO_BARS, lower: NO_BARS };
  let parts = []; // of the lower bars, as they came
  let streaming = ""; // what they are: "measured" or "second"
  let pointer = null;
  let place = null;
  let isNew = true;
  let version = 0;
  let paints = 0;
  let rest = 0;
  let moving = false;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const hint = h("span", { class: "dtfm-hint", title: `${HINT}. ${KEYS}` }, HINT);
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" });
  const busy = h("div", { class: "dtfm-busy", role: "status", hidden: true });
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const tangle = h("span", { class: "dtfm-tangle", "aria-live": "polite" });
  const pathToggle = toggle("show_path", "Critical path", "What the iteration's length is made of (P)");
  const messagesToggle = toggle("show_messages", "Messages", "Arrows from sender to receiver (M)");
  const zooms = h("span", { class: "dtfm-zooms", role: "group", "aria-label": "Zoom" },
    ...[["−", "Zoom out (-)", () => view.zoom(1 / 0.6)], ["+", "Zoom in (+)", () => view.zoom(0.6)], ["All", "Show the whole iteration (0)", () => view.reset()]]
      .map(([text, help, onclick]) => h("button", { type: "button", title: help, "aria-label": help, onclick }, text)));
  const root = frame("dtfm-gantt", "Schedule");
  const heading = h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), tangle, messagesToggle, pathToggle, zooms);
  root.append(heading, legend, box);
  el.append(root);

  const paintChart = chartPainter();
  const { draw: drawAll } = sharpCanvas(box, paint, cleanUp);
  const { draw: drawPointer } = sharpCanvas(box, paintPointer, cleanUp); // so that a hover repaints no bars
  box.append(empty, busy);
  const tip = tooltip(box);
  const pinned = pinnedBar((half) => (half === UPPER ? state.upper : state.lower), about, drawPointer);
  const view = navigation(root, box, () => extentNow().whole, () => place, { changed: moved, clicked }, cleanUp);
  const overview = minimap(() => place && { state, left: place.left, right: place.right, whole: extentNow().whole }, () => version, view, cleanUp);
  root.append(overview.element, pinned.element, h("div", { class: "dtfm-foot" }, caption, hint));
  cleanUp.add(() => clearTimeout(rest));

  function draw() { drawAll(); drawPointer(); overview.draw(); }

  function moved(isMoving) {
    moving = isMoving;
    clearTimeout(rest);
    if (moving) rest = setTimeout(() => { moving = false; if (root.dataset.hurried) drawAll(); }, RESTED);
    draw();
  }

  box.addEventListener("pointermove", (event) => { pointer = { x: event.offsetX, y: event.offsetY }; drawPointer(); });
  box.addEventListener("pointerleave", () => { pointer = null; drawPointer(); });
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const button = { p: pathToggle, m: messagesToggle }[event.key.toLowerCase()];
    if (button && !button.hidden) button.click();
    else if (event.key === "," || event.key === ".") step(event.key === "," ? -1 : 1);
    else if (event.key === "Escape" && pinned.isPinned()) pinned.pin(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  function toggle(trait, text, help) {
    return h("button", {
      type: "button", title: help, "aria-pressed": "false", hidden: true,
      onclick: () => { model.set(trait, !model.get(trait)); model.save_changes(); },
    }, text);
  }

  function extentNow() { return extent(state.upper, state.lower, model.get("time_unit")); }
  const nothing = () => !state.upper.count && !state.lower.count;
  const brand = () => getComputedStyle(box).getPropertyValue("--jp-brand-color1").trim() || "#1976d2";

  function paint(context, width, height, theme) {
    place = null;
    if (nothing()) return;
    const look = { width, height, theme: { ...theme, brand: brand() }, ratio: window.devicePixelRatio || 1, span: view.visible(), moving };
    const painted = paintChart(context, look, { ...state, unit: extentNow().unit });
    place = painted.place;
    root.dataset.hurried = painted.hurried ? "true" : "";
    tangle.textContent = painted.tangle ? `${painted.tangle.toLocaleString("en-US")} messages in sight: zoom in to see them` : "";
    root.dataset.paints = String(++paints);
    if (isNew) root.dataset.painted = String(performance.now());
    isNew = false;
    overview.draw();
  }

  function paintPointer(context, _width, _height, theme) {
    tip.hide();
    if (!place) return;
    pinned.outline(context, place, theme);
    if (!pointer || view.dragging()) return;
    const { x, y } = pointer;
    if (x < place.left || x > place.right) return;
    context.strokeStyle = theme.softText;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, place.top);
    context.lineTo(Math.round(x) + 0.5, place.bottom);
    context.stroke();
    const words = wordsAt(x, y);
    if (words.length) tip.show(words.join("\n"), x, y);
  }

  function barAt(x, y) {
    const spot = place?.under(y);
    if (!spot || x < place.left || x > place.right) return null;
    const bars = spot.half === UPPER ? state.upper : state.lower;
    const bar = barUnder(bars, spot.row, spot.lane, state.lanes, place.time(x), 1.5 / place.scale);
    return bar && { bar, half: spot.half };
  }

  function wordsAt(x, y) {
    const found = barAt(x, y);
    if (found) return about(found);
    const at = place.strips.findIndex((_, number) => y >= place.strip(number)[0] && y <= place.strip(number)[1]);
    if (place.strips[at] !== "memory") return [];
    const { time, held, otherTime, otherHeld, device } = state.memory;
    const now = place.time(x);
    const lines = [`${device} · ${bytes(heldAt(time, held, now) ?? 0)} at ${moment(now, extentNow().unit)}`];
    if (otherTime.length) lines.push(`${model.get("lower_name")} ${bytes(heldAt(otherTime, otherHeld, now) ?? 0)}`);
    return lines;
  }

  function about({ bar, half }) {
    const other = state.halves ? counterpart(half === UPPER ? state.lower : state.upper, bar) : null;
    const [upper, lower] = half === UPPER ? [bar, other] : [other, bar];
    return describe({ upper, lower }, { ...state, several: state.perPipeline > 0, unit: extentNow().unit });
  }

  function clicked(event) {
    const found = barAt(event.offsetX, event.offsetY);
    const row = place?.under(event.offsetY)?.row;
    if (row === undefined) return;
    if (found) pinned.pin(found);
    choose(state.devices[row], event.shiftKey);
  }

  function choose(device, more) {
    if (device === undefined) return;
    const before = model.get("selected");
    const kept = more ? before.filter((name) => name !== device) : [];
    model.set("selected", more && before.includes(device) ? kept : [...kept, device]);
    model.save_changes();
  }

  /** Hold the next bar of the row, or the one before. */
  function step(by) {
    if (nothing() || !place) return;
    const found = pinned.neighbour(by, place.shown[0], place.from);
    if (!found) return;
    const { bar } = found;
    pinned.pin(found);
    choose(state.devices[bar.row], false);
    const [from, to] = view.visible();
    if (bar.start < from || bar.end > to) view.look(bar.start - (to - from) / 2, bar.start + (to - from) / 2);
  }

  function loadUpper() {
    state = { ...state, ...readUpper(model) };
    view.reset();
    changed();
  }

  function loadLower() {
    const columns = joined(parts, STREAMED);
    parts = [columns];
    state.lower = columns.start.length ? new Bars(columns) : NO_BARS;
    changed();
  }

  function changed() {
    isNew = true;
    showTexts();
    pinned.follow();
  }

  function showTexts() {
    version++;
    state = { ...state, ...readRest(model, state) };
    const { upper, lower, kinds, path, messages, arranged, perPipeline } = state;
    const isMeasured = streaming === "measured";
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    empty.textContent = model.get("empty_words");
    busy.textContent = model.get("busy");
    busy.hidden = !model.get("busy");
    empty.hidden = !nothing() || !busy.hidden;
    box.style.height = `${model.get("height") + (nothing() ? 0 : extraHeight(arranged, stripsOf(state).length, state.ends.length > 0, state.halves !== null))}px`;
    root.setAttribute("aria-label", `${model.get("title")}: ${upper.count} ${model.get("upper_name")} and ${lower.count} ${model.get("lower_name")} bars`);
    root.setAttribute("aria-busy", String(!busy.hidden));
    for (const [name, count] of Object.entries({
      predicted: upper.count, measured: isMeasured ? lower.count : 0, second: isMeasured ? 0 : lower.count, path: path.bar.length,
      messages: messages.leaves.length,
    })) root.dataset[name] = String(count);
    for (const element of [hint, legend, zooms, overview.element]) element.hidden = nothing();
    for (const [button, trait, there] of [[pathToggle, "show_path", path.bar.length], [messagesToggle, "show_messages", messages.leaves.length]]) {
      button.hidden = !there;
      button.setAttribute("aria-pressed", String(model.get(trait)));
    }
    legend.replaceChildren(
      ...used().map(({ name, shades, edge }) => swatch("dtfm-swatch", shades[0], name, edge)),
      ...(perPipeline ? [h("span", {}, "paler: a device's later stages")] : []),
      ...(state.halves ? [swatch("dtfm-swatch dtfm-swatch-lower", "transparent", `outlined, lower half: ${state.halves[1]}`)] : []),
      ...(state.mostLate > 0 ? [swatch("dtfm-swatch dtfm-swatch-later", "transparent", "ends later"), swatch("dtfm-swatch dtfm-swatch-earlier", "transparent", "earlier, by over 1 % of the iteration")] : []),
    );
    draw();
  }

  const used = () => state.kinds.filter((_, kind) => state.upper.has(kind) || state.lower.has(kind));

  const reloadUpper = oncePerFrame(loadUpper, cleanUp); // the columns change together
  const reloadLower = oncePerFrame(loadLower, cleanUp);
  const reloadTexts = oncePerFrame(showTexts, cleanUp);

  function receive(message, buffers) {
    if (message.kind === "below") {
      if (message.reset) parts = [];
      streaming = message.what;
      parts.push(Object.fromEntries(Object.entries(STREAMED).map(([name, type], at) => [name, typed(buffers[at], type)])));
      reloadLower();
    } else if (message.kind === "file") {
      unpacked(buffers[0], message.type).then((blob) => offer(blob, message.name));
    } else if (message.kind === "png" && !nothing()) {
      const [width, height] = [box.clientWidth, box.clientHeight];
      const shown = { title: model.get("title"), caption: model.get("caption"), legend: used(), below: state.halves?.[1], width, height, ratio: PNG_RATIO };
      const keep = (context, theme) => paintChart(context, { width, height, theme, ratio: PNG_RATIO, span: view.visible(), moving: false },
        { ...state, unit: extentNow().unit });
      picture(shown, keep).then((blob) => offer(blob, message.name)).then(draw);
    }
  }

  onTraits(model, BAR_TRAITS, reloadUpper, cleanUp);
  onTraits(model, TEXT_TRAITS, reloadTexts, cleanUp);
  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  loadUpper();
  model.send({ kind: "hello" }); // Python answers with the lower bars so far
  return cleanUp.run;
}

function swatch(className, color, text, edge = "") {
  return h("span", {}, h("i", { class: className, style: `color:${color}${edge ? `;box-shadow:inset 0 0 0 1px ${edge}` : ""}` }), text);
}

export default { render };
