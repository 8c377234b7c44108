// The live curve of a search: best cost so far, lower bound, and the gap between them.
import { cleanUps, frame, h, onTraits, typed } from "./shared/dom.js";
import { sharpCanvas, tooltip } from "./shared/canvas.js";
import { onTheme, readTheme } from "./shared/theme.js";
import { Curve, seriesColor } from "./convergence/curve.js";
import { paintPlot, plotArea } from "./convergence/plot.js";
import { compact, figures, seconds } from "./shared/axis.js";

const COLUMNS = 4; // evaluations, seconds, best_s, bound_s
const FEW = 100; // evaluations; a search this short is read on a linear axis

function render({ model, el }) {
  const cleanUp = cleanUps();
  const curves = new Map();
  let chosenScale = null; // log or linear; null leaves it to the number of evaluations
  let pointerX = null;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const scale = h("button", { type: "button", onclick: toggleScale });
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No search yet");
  const caption = h("div", { class: "dtfm-caption", "aria-live": "polite" });
  const root = frame("dtfm-convergence", "Convergence of the search");
  root.append(h("div", { class: "dtfm-heading" }, title, legend, h("span", { class: "dtfm-grow" }), scale), box, caption);
  el.append(root);

  const { element, draw } = sharpCanvas(box, paint, cleanUp);
  box.append(empty);
  const tip = tooltip(box);
  element.addEventListener("pointermove", (event) => { pointerX = event.offsetX; draw(); });
  element.addEventListener("pointerleave", () => { pointerX = null; tip.hide(); draw(); });

  const mostPriced = () => Math.max(0, ...[...curves.values()].map((curve) => curve.lastEvaluations));
  const isLogarithmic = () => (chosenScale ? chosenScale === "log" : mostPriced() > FEW);

  function toggleScale() {
    chosenScale = isLogarithmic() ? "linear" : "log";
    showScale();
    draw();
  }

  function showTexts() {
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    box.style.height = `${model.get("height")}px`;
    root.setAttribute("aria-label", `${model.get("title")}: best cost and lower bound in seconds`);
  }

  function showScale() {
    scale.textContent = isLogarithmic() ? "x: log" : "x: linear";
    scale.title = `Show placements on a ${isLogarithmic() ? "linear" : "logarithmic"} axis`;
  }

  function showLegend() {
    const names = [...curves.keys()];
    const theme = readTheme(root);
    legend.replaceChildren(
      ...names.map((name, index) => swatch(seriesColor(index, theme), name)),
      ...([...curves.values()].some((curve) => curve.hasBound) ? [h("span", {}, "- - lower bound")] : []),
    );
    root.dataset.points = String([...curves.values()].reduce((sum, curve) => sum + curve.length, 0));
    empty.hidden = names.length > 0;
  }

  function receive(message, buffers) {
    if (message.kind === "reset") curves.clear();
    if (message.kind === "points") {
      const name = message.series ?? "best";
      if (!curves.has(name)) curves.set(name, new Curve());
      curves.get(name).append(typed(buffers[0], Float32Array), COLUMNS);
    }
    showLegend();
    showScale();
    draw();
  }

  function paint(context, width, height, theme) {
    if (!curves.size) return;
    const view = paintPlot(context, plotArea(width, height), curves, isLogarithmic(), theme);
    if (pointerX === null || !view.contains(pointerX)) return tip.hide();
    const at = view.evaluationsAt(pointerX);
    const lines = [...curves].flatMap(([name, curve]) => readout(name, curve, at));
    if (!lines.length) return tip.hide();
    view.cursor(pointerX);
    tip.show(lines.join("\n"), pointerX, view.top + 10);
  }

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(model, ["title", "caption", "height"], showTexts, cleanUp);
  onTheme(showLegend, cleanUp);
  showTexts();
  showLegend();
  showScale();
  model.send({ kind: "hello" }); // Python answers with every point so far
  return cleanUp.run;
}

function readout(name, curve, evaluations) {
  const row = curve.rowAt(evaluations);
  if (!row) return [];
  const bound = isFinite(row.bound) ? ` · bound ${seconds(row.bound)}` : "";
  return [`${name}: ${seconds(row.best)}${bound}  (${compact(row.evaluations)} placements, ${figures(row.seconds)} s of search)`];
}

function swatch(color, text) {
  return h("span", {}, h("i", { class: "dtfm-swatch", style: `color:${color}` }), text);
}

export default { render };
