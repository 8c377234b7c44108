// Who does what when: predicted bars and, as they come in, measured ones below them.
import { cleanUps, frame, h, oncePerFrame, onTraits, typed } from "./shared/dom.js";
import { sharpCanvas, tooltip } from "./shared/canvas.js";
import { GREY } from "./shared/theme.js";
import { Bars, barUnder, counterpart, lanesOf } from "./gantt/bars.js";
import { layout } from "./gantt/layout.js";
import { navigation } from "./gantt/navigate.js";
import { FADED, MOST_ARROWS, paintMessages, paintPath } from "./gantt/overlays.js";
import { axisUnit, paintAxis, paintBars, paintRows } from "./gantt/paint.js";
import { named, times, waited } from "./gantt/words.js";

const COLUMNS = {
  start: Float32Array, end: Float32Array, row: Uint16Array, kind: Uint8Array, microbatch: Int16Array, stage: Uint16Array,
};
const NAMES = Object.keys(COLUMNS);
const MESSAGES = {
  source: Uint16Array, target: Uint16Array, leaves: Float32Array, arrives: Float32Array, kind: Uint8Array,
  microbatch: Int16Array,
};
const PATH = { row: Uint16Array, start: Float32Array, end: Float32Array, bar: Int32Array };
const [PREDICTED, MEASURED] = [0, 1];
const HINT = "Click, then scroll to zoom (or Ctrl + scroll) · drag to pan · double-click for all";
const KEYS = "Keys: + - 0 and the arrows, P for the critical path, M for messages.";

function render({ model, el }) {
  const cleanUp = cleanUps();
  let predicted = new Bars();
  let measured = new Bars();
  let columns = {};
  let messages = { leaves: [] };
  let path = { bar: [] };
  let lanes = null;
  let pointer = null;
  let place = null;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const hint = h("span", { class: "dtfm-hint", title: `${HINT}. ${KEYS}` }, HINT);
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No schedule yet");
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const tangle = h("span", { class: "dtfm-tangle", "aria-live": "polite" });
  const pathToggle = toggle("show_path", "Critical path", "What the iteration's length is made of (P)");
  const messagesToggle = toggle("show_messages", "Messages", "Arrows from sender to receiver (M)");
  const root = frame("dtfm-gantt", "Schedule");
  root.append(
    h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), tangle, messagesToggle, pathToggle),
    legend, box, h("div", { class: "dtfm-foot" }, caption, hint));
  el.append(root);

  const { draw: drawAll } = sharpCanvas(box, paint, cleanUp);
  const { draw: drawPointer } = sharpCanvas(box, paintPointer, cleanUp); // so that a hover repaints no bars
  const draw = () => { drawAll(); drawPointer(); };
  box.append(empty);
  const tip = tooltip(box);
  const view = navigation(root, box, whole, () => place, draw, cleanUp);
  box.addEventListener("pointermove", (event) => { pointer = { x: event.offsetX, y: event.offsetY }; drawPointer(); });
  box.addEventListener("pointerleave", () => { pointer = null; drawPointer(); });
  root.addEventListener("keydown", (event) => {
    const button = { p: pathToggle, m: messagesToggle }[event.key.toLowerCase()];
    if (!button || button.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
    button.click();
    event.preventDefault();
    event.stopPropagation();
  });

  function toggle(trait, text, help) {
    return h("button", {
      type: "button", title: help, "aria-pressed": "false", hidden: true,
      onclick: () => { model.set(trait, !model.get(trait)); model.save_changes(); },
    }, text);
  }

  function whole() {
    const [first, last] = [Math.min(predicted.first, measured.first), Math.max(predicted.last, measured.last)];
    return last > first ? [first, last] : [0, 1];
  }

  const rowLabels = () => {
    const labels = model.get("rows");
    const n = Math.max(labels.length, predicted.rows.length, measured.rows.length);
    return Array.from({ length: n }, (_, row) => labels[row] ?? `row ${row}`);
  };
  const kinds = () => model.get("kinds").map(({ name, color, shades, edge, message }) => (
    { name, color: color || GREY, shades: shades?.length ? shades : [color || GREY], edge: edge || "", message: !!message }));
  const shownUnit = () => axisUnit(whole()[1] - whole()[0], model.get("time_unit"));
  const perPipeline = () => model.get("devices_per_pipeline");

  function paint(context, width, height, theme) {
    place = null;
    if (!predicted.count && !measured.count) return;
    context.font = theme.font;
    const labels = rowLabels();
    const split = measured.count > 0;
    const shown = kinds();
    place = layout(context, width, height, labels, view.visible(), split, lanes);
    const unit = shownUnit();
    const withPath = model.get("show_path") && path.bar.length > 0;
    paintRows(context, place, labels, theme);
    paintAxis(context, place, unit, theme);
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.right - place.left, place.bottom - place.top);
    context.clip();
    context.globalAlpha = withPath ? FADED : 1;
    paintBars(context, place, predicted, shown, perPipeline(), PREDICTED, null);
    if (split) paintBars(context, place, measured, shown, perPipeline(), MEASURED, theme.text);
    context.globalAlpha = 1;
    const inSight = model.get("show_messages") ? paintMessages(context, place, messages, theme.text) : 0;
    tangle.textContent = inSight > MOST_ARROWS ? `${inSight.toLocaleString("en-US")} messages in sight: zoom in to see them` : "";
    if (withPath) paintPath(context, place, path, columns, shown, perPipeline());
    context.restore();
  }

  function paintPointer(context, width, height, theme) {
    tip.hide();
    if (!pointer || !place || view.dragging()) return;
    const { x, y } = pointer;
    if (x < place.left || x > place.right) return;
    context.strokeStyle = theme.softText;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, place.top);
    context.lineTo(Math.round(x) + 0.5, place.bottom);
    context.stroke();
    const spot = place.under(y);
    if (!spot) return;
    const bars = [predicted, measured][spot.half];
    const bar = barUnder(bars, spot.row, spot.lane, lanes, place.time(x), 1.5 / place.scale);
    if (bar) tip.show(describe(bar, spot), x, y);
  }

  function describe(bar, { row, half }) {
    const unit = shownUnit();
    const names = rowLabels().map((label, at) => model.get("names")[at] ?? label);
    const several = perPipeline() > 0;
    const head = `${names[row]} · ${named(bar, kinds(), several)}`;
    const other = measured.count ? counterpart(half === PREDICTED ? measured : predicted, row, bar) : null;
    const [forecast, fact] = half === PREDICTED ? [bar, other] : [other, bar];
    const why = forecast ? waited(forecast.id, { columns, messages, kinds: kinds(), names, several, unit }) : "";
    const lines = measured.count
      ? [head, `predicted ${forecast ? times(forecast, unit) : "–"}`, `measured ${fact ? times(fact, unit) : "–"}`]
      : [`${head} · ${times(bar, unit)}`];
    return [...lines, why].filter(Boolean).join("\n");
  }

  const read = (types, prefix) => Object.fromEntries(
    Object.entries(types).map(([name, type]) => [name, typed(model.get(prefix + name), type)]));

  function loadPredicted() {
    columns = read(COLUMNS, "");
    columns.after = typed(model.get("after"), Int32Array);
    predicted = new Bars();
    predicted.append(columns);
    messages = read(MESSAGES, "message_");
    messages.reach = latestSoFar(messages.arrives);
    path = read(PATH, "path_");
    path.reach = latestSoFar(path.end);
    view.reset();
    showTexts();
  }

  function receive(message, buffers) {
    if (message.kind !== "measured") return;
    if (message.reset) measured = new Bars();
    measured.append(Object.fromEntries(NAMES.map((name, index) => [name, typed(buffers[index], COLUMNS[name])])));
    showTexts();
    draw();
  }

  function showTexts() {
    const [shown, { length: nMessages }] = [kinds(), messages.leaves];
    lanes = lanesOf(shown.length, predicted, measured);
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    box.style.height = `${model.get("height")}px`;
    root.setAttribute("aria-label", `${model.get("title")}: ${predicted.count} predicted and ${measured.count} measured bars`);
    root.dataset.predicted = String(predicted.count);
    root.dataset.measured = String(measured.count);
    root.dataset.path = String(path.bar.length);
    root.dataset.messages = String(nMessages);
    empty.hidden = predicted.count + measured.count > 0;
    hint.hidden = !empty.hidden;
    for (const [button, trait, there] of [[pathToggle, "show_path", path.bar.length], [messagesToggle, "show_messages", nMessages]]) {
      button.hidden = !there;
      button.setAttribute("aria-pressed", String(model.get(trait)));
    }
    const used = shown.filter((_, kind) => predicted.has(kind) || measured.has(kind));
    legend.hidden = !empty.hidden;
    legend.replaceChildren(
      ...used.map(({ name, shades, edge }) => swatch("dtfm-swatch", shades[0], name, edge)),
      ...(perPipeline() ? [h("span", {}, "paler: a device's later stages")] : []),
      ...(measured.count ? [swatch("dtfm-swatch dtfm-swatch-measured", "transparent", "outlined, lower half: measured")] : []),
    );
    draw();
  }

  const reload = oncePerFrame(loadPredicted, cleanUp); // the columns change together
  const [ofMessages, ofPath] = [[MESSAGES, "message_"], [PATH, "path_"]].map(([types, prefix]) => Object.keys(types).map((name) => prefix + name));
  onTraits(model, [...NAMES, "after", ...ofMessages, ...ofPath], reload, cleanUp);
  onTraits(model, ["title", "caption", "height", "rows", "names", "kinds", "time_unit", "devices_per_pipeline", "show_path", "show_messages"],
    showTexts, cleanUp);
  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  loadPredicted();
  model.send({ kind: "hello" }); // Python answers with everything measured so far
  return cleanUp.run;
}

function latestSoFar(times) {
  let latest = -Infinity;
  return times.map((time) => (latest = Math.max(latest, time)));
}

function swatch(className, color, text, edge = "") {
  return h("span", {}, h("i", { class: className, style: `color:${color}${edge ? `;box-shadow:inset 0 0 0 1px ${edge}` : ""}` }), text);
}

export default { render };
