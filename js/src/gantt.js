// Who does what when: predicted bars and, as they come in, measured ones below them.
import { cleanUps, frame, h, oncePerFrame, onTraits, typed } from "./shared/dom.js";
import { sharpCanvas, tooltip } from "./shared/canvas.js";
import { figures } from "./shared/axis.js";
import { GREY } from "./shared/theme.js";
import { Bars, barUnder, counterpart, lanesOf } from "./gantt/bars.js";
import { layout } from "./gantt/layout.js";
import { navigation } from "./gantt/navigate.js";
import { axisUnit, paintAxis, paintBars, paintRows } from "./gantt/paint.js";

const COLUMNS = { start: Float32Array, end: Float32Array, row: Uint16Array, kind: Uint8Array, microbatch: Int16Array };
const NAMES = Object.keys(COLUMNS);
const [PREDICTED, MEASURED] = [0, 1];
const HINT = "Click, then scroll to zoom (or Ctrl + scroll) · drag to pan · double-click for all";

function render({ model, el }) {
  const cleanUp = cleanUps();
  let predicted = new Bars();
  let measured = new Bars();
  let pointer = null;
  let place = null;
  let lanes = null;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const hint = h("span", { class: "dtfm-hint", title: `${HINT}. Keys: + - 0 and the arrows.` }, HINT);
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No schedule yet");
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const root = frame("dtfm-gantt", "Schedule");
  root.append(h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), legend), box,
    h("div", { class: "dtfm-foot" }, caption, hint));
  el.append(root);

  const { draw } = sharpCanvas(box, paint, cleanUp);
  box.append(empty);
  const tip = tooltip(box);
  const view = navigation(root, box, whole, () => place, draw, cleanUp);
  box.addEventListener("pointermove", (event) => { pointer = { x: event.offsetX, y: event.offsetY }; draw(); });
  box.addEventListener("pointerleave", () => { pointer = null; draw(); });

  function whole() {
    const [first, last] = [Math.min(predicted.first, measured.first), Math.max(predicted.last, measured.last)];
    return last > first ? [first, last] : [0, 1];
  }

  const rowLabels = () => {
    const labels = model.get("rows");
    const n = Math.max(labels.length, predicted.rows.length, measured.rows.length);
    return Array.from({ length: n }, (_, row) => labels[row] ?? `row ${row}`);
  };
  const kinds = () => model.get("kinds").map(({ name, color }) => ({ name, color: color || GREY }));

  function paint(context, width, height, theme) {
    place = null;
    tip.hide();
    if (!predicted.count && !measured.count) return;
    context.font = theme.font;
    const labels = rowLabels();
    const split = measured.count > 0;
    lanes = lanesOf(kinds().length, predicted, measured);
    place = layout(context, width, height, labels, view.visible(), split, lanes.count);
    const unit = axisUnit(whole()[1] - whole()[0], model.get("time_unit"));
    paintRows(context, place, labels, theme);
    paintAxis(context, place, unit, theme);
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.right - place.left, place.bottom - place.top);
    context.clip();
    paintBars(context, place, predicted, kinds(), lanes, PREDICTED, null);
    if (split) paintBars(context, place, measured, kinds(), lanes, MEASURED, theme.text);
    context.restore();
    if (pointer && !view.dragging()) paintPointer(context, labels, unit, theme);
  }

  function paintPointer(context, labels, unit, theme) {
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
    if (bar) tip.show(describe(labels[spot.row], bar, spot, unit), x, y);
  }

  function describe(label, bar, { row, half }, unit) {
    const name = kinds()[bar.kind]?.name ?? `kind ${bar.kind}`;
    const head = `${label} · ${name}${bar.microbatch >= 0 ? ` ${bar.microbatch}` : ""}`;
    if (!measured.count) return `${head} · ${times(bar, unit)}`;
    const other = counterpart(half === PREDICTED ? measured : predicted, row, bar);
    const [forecast, fact] = half === PREDICTED ? [bar, other] : [other, bar];
    return [head, `predicted ${forecast ? times(forecast, unit) : "–"}`, `measured ${fact ? times(fact, unit) : "–"}`].join("\n");
  }

  function loadPredicted() {
    predicted = new Bars();
    const columns = Object.fromEntries(NAMES.map((name) => [name, typed(model.get(name), COLUMNS[name])]));
    predicted.append(columns);
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
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    box.style.height = `${model.get("height")}px`;
    root.setAttribute("aria-label", `${model.get("title")}: ${predicted.count} predicted and ${measured.count} measured bars`);
    root.dataset.predicted = String(predicted.count);
    root.dataset.measured = String(measured.count);
    empty.hidden = predicted.count + measured.count > 0;
    hint.hidden = !empty.hidden;
    legend.replaceChildren(
      ...(empty.hidden ? kinds().map(({ name, color }) => swatch("dtfm-swatch", color, name)) : []),
      ...(measured.count ? [swatch("dtfm-swatch dtfm-swatch-measured", "transparent", "outlined, lower half: measured")] : []),
    );
    draw();
  }

  const reload = oncePerFrame(loadPredicted, cleanUp); // the five columns change together
  onTraits(model, NAMES, reload, cleanUp);
  onTraits(model, ["title", "caption", "height", "rows", "kinds", "time_unit"], showTexts, cleanUp);
  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  loadPredicted();
  model.send({ kind: "hello" }); // Python answers with everything measured so far
  return cleanUp.run;
}

function times({ start, end }, unit) {
  const [from, to] = [start * unit.perSecond, end * unit.perSecond];
  const decimals = unit.name === "ms" ? 1 : 3;
  return `${from.toFixed(decimals)} to ${to.toFixed(decimals)} ${unit.name} (${figures(to - from)} ${unit.name})`;
}

function swatch(className, color, text) {
  return h("span", {}, h("i", { class: className, style: `color:${color}` }), text);
}

export default { render };
