// The losses of a run as they arrive: training, held-out text, and that text's unigram entropy.
import { lineChart } from "shared/chart.js";
import { cleanUps, frame, h, onTraits, typed } from "shared/dom.js";
import { view } from "shared/view.js";
import { plotted } from "./page/plot.js";
/** @import { Message, Render } from "shared/types.d.ts" */
/** @import { HeldOut, Shown, Traits } from "./types.d.ts" */

/** @type {Render<Traits>} */
function render({ model, el }) {
  const cleanUp = cleanUps();
  /** @type {number[]} */
  const training = [];
  /** @type {HeldOut[]} */
  let heldOut = []; // [iterations done, loss]

  const title = h("strong");
  const legend = h("div", { class: "dtfm-legend" });
  const box = h("div", { class: "dtfm-box" });
  const empty = h("div", { class: "dtfm-empty" }, "No training loss yet");
  const caption = h("div", { class: "dtfm-caption" });
  const root = frame("dtfm-losses", "Losses", "img");
  root.removeAttribute("tabindex"); // nothing in it is pressed
  root.append(h("div", { class: "dtfm-heading" }, title, h("span", { class: "dtfm-grow" }), legend), box, caption);
  el.append(root);

  /** @type {() => Shown} */
  const shown = () => ({
    training,
    heldOut,
    slim: !model.get("height"),
    unit: model.get("unit"),
    first: model.get("first"),
    total: model.get("total"),
    reference: model.get("reference"),
    marks: model.get("marks"),
  });
  const { draw } = lineChart(box, (theme) => (training.length ? plotted(shown(), theme) : null), words, cleanUp);
  box.append(empty);

  /** @type {(at: number) => string} */
  function words(at) {
    const first = model.get("first");
    const index = Math.min(training.length - 1, Math.max(0, Math.round(at - first)));
    const beside = heldOut.find(([done]) => done === first + index);
    return `${first + index} iterations done: training loss ${training[index].toFixed(4)} ${model.get("unit")}${
      beside ? `\nheld-out ${beside[1].toFixed(4)} ${model.get("unit")}` : ""
    }`;
  }

  /** @type {(message: Message, buffers: DataView[]) => void} */
  function receive(message, buffers) {
    if (message.kind !== "losses") return;
    training.length = message.from; // after a lost worker, some are repeated
    for (const loss of typed(buffers[0], Float64Array)) training.push(loss);
    if (message.held_out) heldOut = message.held_out;
    showTexts();
    draw();
  }

  function showTexts() {
    const reference = model.get("reference");
    const n = training.length;
    box.style.height = model.get("height") ? `${model.get("height")}px` : "";
    root.classList.toggle("dtfm-losses-fill", !model.get("height"));
    title.textContent = [model.get("title"), model.get("height") ? "" : model.get("unit")].filter(Boolean).join(", ");
    caption.textContent = model.get("caption");
    empty.hidden = n > 0;
    root.dataset.points = String(n);
    const marks = [
      ["training", "training"],
      ...(heldOut.length ? [["held-out", model.get("beside")]] : []),
      ...(reference === null ? [] : [["level", "without context"]]),
    ];
    legend.replaceChildren(...(n ? marks : []).map(([kind, text]) => h("span", {}, h("i", { class: `dtfm-losses-${kind}` }), text)));
    const first = model.get("first");
    const range = n ? `${training[0].toFixed(3)} to ${training[n - 1].toFixed(3)} ${model.get("unit")}, iterations ${first} to ${first + n - 1}` : "none yet";
    root.setAttribute("aria-label", `${model.get("title")}: ${range}`);
  }

  model.on("msg:custom", receive);
  cleanUp.add(() => model.off("msg:custom", receive));
  onTraits(
    model,
    ["title", "unit", "beside", "caption", "height", "reference", "total", "first", "marks"],
    () => {
      showTexts();
      draw();
    },
    cleanUp,
  );
  showTexts();
  model.send({ kind: "hello" }); // Python replies with every point so far
  return cleanUp.run;
}

export default view(render);
