// The live curves of one or more searches: best cost so far, median of the population, lower bound.
import { cleanUps, frame, h, onTraits, typed } from "shared/dom.js";
import { lineChart } from "shared/chart.js";
import { onTheme, readTheme } from "shared/theme.js";
import { COLUMNS, Curve } from "./page/curve.js";
import { legendItems } from "./page/legend.js";
import { plotted } from "./page/plot.js";
import { compact, dollars, figures, seconds } from "shared/axis.js";
import { there } from "shared/there.js";
import { view } from "shared/view.js";
/** @import { Message, Render } from "shared/types.d.ts" */
/** @import { Across, Axis, Curves, Row, Traits, Words } from "./types.d.ts" */

const FEW = 100; // evaluations; a search this short gets a linear axis
/** @type {Record<Across, string>} */
const ACROSS = { evaluations: "placements", seconds: "seconds" };
const SETTLED_MS = 1500; // milliseconds; screen readers read a caption that stays this long

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  /** @type {Curves} */
  const curves = new Map();
  /** @type {"log" | "linear" | null} */
  let chosenScale = null; // log or linear; null decides by the number of evaluations
  let drawn = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let settling;

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const across = Object.entries(ACROSS).map(([name, text]) =>
    h("button", { type: "button", "data-across": name, title: `Show ${text} across`, onclick: () => chooseAcross(name) }, text),
  );
  const scale = h("button", { type: "button", class: "dtfm-scale", onclick: toggleScale });
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" });
  const caption = h("div", { class: "dtfm-caption" });
  const announced = h("div", { class: "dtfm-announced", "aria-live": "polite" });
  const root = frame("dtfm-convergence", "Convergence of the search");
  root.append(
    h("div", { class: "dtfm-heading" }, title, legend, h("div", { class: "dtfm-across", role: "group", "aria-label": "What is across" }, ...across), scale),
    box,
    caption,
    announced,
  );
  el.append(root);
  cleanUp.add(() => clearTimeout(settling));

  const { draw, move } = lineChart(
    box,
    (theme) => (curves.size ? plotted(curves, axis(), theme) : null),
    told,
    cleanUp,
    () => {
      root.dataset.drawn = String(++drawn);
    },
  );
  box.append(empty);
  root.addEventListener("keydown", moveCursor);

  const against = () => model.get("against");
  const mostPriced = () => Math.max(0, ...[...curves.values()].map((curve) => curve.last("evaluations")));
  const isLogarithmic = () => (chosenScale ? chosenScale === "log" : against() === "evaluations" && mostPriced() > FEW);

  /** @type {() => Axis} */
  const axis = () => ({
    against: against(),
    logarithmic: isLogarithmic(),
    label: against() === "seconds" ? model.get("clock") : "plans evaluated",
    noun: model.get("noun"),
    unit: model.get("unit"),
    words: words(),
  });

  function toggleScale() {
    chosenScale = isLogarithmic() ? "linear" : "log";
    showScale();
    draw();
  }

  /** @type {(name: string) => void} */
  function chooseAcross(name) {
    chosenScale = null;
    model.set("against", /** @type {Across} */ (name));
    model.save_changes();
  }

  /**
   * Arrow keys read the curves from left to right, as a pointer would.
   * @type {(event: KeyboardEvent) => void}
   */
  function moveCursor(event) {
    if (event.target !== root || !["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) return;
    event.preventDefault();
    move(event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0);
  }

  function showTexts() {
    title.textContent = model.get("title");
    box.style.height = model.get("height") ? `${model.get("height")}px` : "";
    root.classList.toggle("dtfm-filling", !model.get("height"));
    root.setAttribute("aria-label", `${model.get("title")}: best, median and lower bound of the ${model.get("noun")}; arrow keys read values`);
  }

  /** @type {(text: string) => void} */
  function showCaption(text) {
    caption.textContent = text;
    clearTimeout(settling);
    settling = setTimeout(() => {
      announced.textContent = text;
    }, SETTLED_MS);
  }

  function showScale() {
    for (const button of across) button.setAttribute("aria-pressed", String(button.dataset.across === against()));
    scale.textContent = isLogarithmic() ? "x: log" : "x: linear";
    scale.title = `Show ${ACROSS[against()]} on a ${isLogarithmic() ? "linear" : "logarithmic"} axis`;
  }

  function showLegend() {
    legend.replaceChildren(...legendItems(curves, model.get("bound_label"), readTheme(root)));
    empty.hidden = curves.size > 0;
    empty.textContent = model.get("empty");
  }

  /** @type {(message: Message, buffers: DataView[]) => void} */
  function receive(message, buffers) {
    const before = looks();
    if (message.kind === "reset") curves.clear();
    if (message.kind === "points") {
      const values = typed(buffers[0], Float32Array);
      let from = 0;
      for (const { name, drop, count } of message.series) {
        if (!curves.has(name)) curves.set(name, new Curve());
        there(curves.get(name)).change(drop, values.subarray(from, (from += count * COLUMNS.length)));
      }
      showCaption(message.caption);
    }
    if (looks() !== before) showLegend(); // rarely: new points do not touch the page's elements
    root.dataset.points = String([...curves.values()].reduce((sum, curve) => sum + curve.length, 0));
    showScale();
    draw();
  }

  const looks = () => [...curves].map(([name, curve]) => `${name} ${curve.has("median")} ${curve.has("bound")}`).join("\n");

  /** How a value is written. */
  const words = () => (model.get("unit") === "$" ? dollars : seconds);

  /** @type {(at: number) => string} */
  function told(at) {
    return [...curves].flatMap(([name, curve]) => readout(name, curve.rowAt(against(), at), words())).join("\n");
  }

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(model, ["title", "height", "noun"], showTexts, cleanUp);
  onTraits(
    model,
    ["noun", "unit", "bound_label", "empty"],
    () => {
      showLegend();
      draw();
    },
    cleanUp,
  );
  onTraits(
    model,
    ["against", "clock"],
    () => {
      showScale();
      draw();
    },
    cleanUp,
  );
  onTheme(showLegend, cleanUp);
  showTexts();
  showLegend();
  showScale();
  model.send({ kind: "hello" }); // Python replies with every point so far
  return cleanUp.run;
}

/** @type {(name: string, row: Row | null, words: Words) => string[]} */
function readout(name, row, words) {
  if (!row) return [];
  const median = isFinite(row.median) ? ` · median ${words(row.median)}` : "";
  const bound = isFinite(row.bound) ? ` · bound ${words(row.bound)}` : "";
  const when = `${compact(row.evaluations)} plans, ${figures(row.seconds)} s of search`;
  return [`${name}: ${words(row.best)}${median}${bound}  (${when})`];
}

export default view(render);
